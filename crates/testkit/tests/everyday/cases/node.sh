# The event loop's threads, workers, a cluster, child processes.
# needs: node=nodejs
cat >p.js <<'J'
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads"), cp = require("child_process"), fs = require("fs"), crypto = require("crypto"), http = require("http");
if (!isMainThread) { parentPort.postMessage(workerData ** 2); return; }
(async () => {
  const w = await Promise.all([1, 2, 3, 4].map(n => new Promise(r => new Worker(__filename, { workerData: n }).on("message", r)))); console.log(w.join());
  console.log(cp.execSync("echo sync").toString().trim(), cp.spawnSync("sh", ["-c", "exit 4"]).status);
  console.log(await new Promise(r => cp.fork("-e", ["process.send(7)"], { execArgv: [] }).on("error", () => r("e")).on("message", r).on("exit", c => r("exit " + c))));
  console.log((await Promise.all([1, 2, 3].map(n => new Promise(r => crypto.pbkdf2("p", "s" + n, 1000, 8, "sha1", (e, k) => r(k.toString("hex"))))))).join());
  const s = http.createServer((q, a) => a.end("served")).listen(0, "127.0.0.1", () => http.get({ port: s.address().port, host: "127.0.0.1" }, a => { a.on("data", d => console.log(d.toString())); a.on("end", () => s.close()); }));
  process.on("SIGUSR2", () => console.log("usr2")); process.kill(process.pid, "SIGUSR2"); await new Promise(r => setTimeout(r, 100));
})();
J
node p.js
