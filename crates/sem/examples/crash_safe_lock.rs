//! A lock between processes that no death leaves locked: a value of 1, taken with undo.
//!
//! Four processes add to a number in a file, each step a read and a write that would lose counts without the lock. Meanwhile others take
//! the lock and are killed with it. (What a killed holder had half done is another matter: here it does nothing before it dies.)
//!
//! `cargo run --release -p manyway-sem --example crash_safe_lock`

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, thread};

use manyway_sem::{Key, Namespace, Permit, Semaphore};

const PROCESSES: u32 = 4;
const STEPS: u32 = 2000;
const KEY: Key = Key::new(0x6c6f_636b);

/// A lock by name in a namespace.
struct Lock(Semaphore);

impl Lock {
    fn open(namespace: Namespace) -> Result<Lock, manyway_sem::Error> {
        Ok(Lock(namespace.set(KEY).create(&[1])?.sem(0)?))
    }
    /// Waits for it; dropping the permit unlocks.
    fn lock(&self) -> Result<Permit, manyway_sem::Error> {
        self.0.acquire()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        Some("count") => count(),
        Some("die") => die(),
        _ => supervise(),
    }
}

fn number(namespace: Namespace) -> PathBuf {
    namespace.dir().join("number")
}

fn read(file: &Path) -> Result<u32, Box<dyn Error>> {
    Ok(fs::read_to_string(file)?.trim().parse()?)
}

fn count() -> Result<(), Box<dyn Error>> {
    let namespace = Namespace::from_env()?;
    let (lock, file) = (Lock::open(namespace)?, number(namespace));
    for _ in 0..STEPS {
        let _locked = lock.lock()?;
        fs::write(&file, (read(&file)? + 1).to_string())?;
    }
    Ok(())
}

fn die() -> Result<(), Box<dyn Error>> {
    let lock = Lock::open(Namespace::from_env()?)?;
    let _locked = lock.lock()?;
    loop {
        thread::park();
    }
}

fn supervise() -> Result<(), Box<dyn Error>> {
    let namespace = Namespace::private()?;
    let lock = Lock::open(*namespace)?;
    fs::write(number(*namespace), "0")?;

    let start = |role: &str| Command::new(env::current_exe()?).arg(role).env("MANYWAY_DIR", namespace.dir()).spawn();
    let counters = (0..PROCESSES).map(|_| start("count")).collect::<Result<Vec<Child>, _>>()?;
    for _ in 0..5 {
        let mut victim = start("die")?;
        let begun = Instant::now();
        while !lock.0.set().holders()?.iter().any(|h| h.pid == victim.id() && h.adj == 1) {
            if begun.elapsed() > Duration::from_secs(30) {
                return Err("the victim never had the lock".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        victim.kill()?;
        victim.wait()?;
        let killed = Instant::now();
        namespace.reap(); // those who wait for the lock need not find out by themselves
        drop(lock.lock()?);
        println!("process {} was killed with the lock; {:?} later we had it", victim.id(), killed.elapsed());
    }
    for mut counter in counters {
        if !counter.wait()?.success() {
            return Err("a counter failed".into());
        }
    }
    let counted = read(&number(*namespace))?;
    println!("{counted} of {} steps are in the file", PROCESSES * STEPS);
    assert_eq!(counted, PROCESSES * STEPS);
    Ok(())
}
