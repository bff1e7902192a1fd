# Processes started in each way, threads, sub-processes, signals, asyncio.
# needs: python-tests=python3
# sample
cat >p.py <<'P'
import asyncio, concurrent.futures, multiprocessing as mp, os, signal, subprocess, sys, threading
def square(n): return n * n
if __name__ == "__main__":
    for way in ("fork", "spawn", "forkserver"):
        with mp.get_context(way).Pool(2) as pool: print(way, pool.map(square, range(5)))
    with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(square, range(100))))
    print(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 5"], capture_output=True))
    print(subprocess.run([sys.executable, "-c", "print(1)"], env={}, capture_output=True).stdout)
    signal.signal(signal.SIGALRM, lambda *a: print("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.05); signal.pause()
    async def main():
        p = await asyncio.create_subprocess_exec("sh", "-c", "exit 6"); print(await p.wait())
        print(await asyncio.gather(*(asyncio.sleep(0.01, n) for n in range(3))))
    asyncio.run(main())
    l = mp.Lock(); v = mp.Value("i", 0)
    def add():
        for _ in range(200):
            with v.get_lock(): v.value += 1
    ps = [mp.get_context("fork").Process(target=add) for _ in range(3)]; [p.start() for p in ps]; [p.join() for p in ps]; print(v.value)
    r, w = os.pipe(); pid = os.posix_spawn("/bin/echo", ["echo", "spawned"], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, w, 1)]); os.waitpid(pid, 0); print(os.read(r, 99))
P
"$PYTHON" -u p.py
