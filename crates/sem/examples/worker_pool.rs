//! A limit shared by processes: six workers, of which no more than two work at once. One is killed at work; its permit comes back.
//!
//! `cargo run --release -p manyway-sem --example worker_pool`

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use manyway_sem::{Key, Namespace, Semaphore};

const WORKERS: u32 = 6;
const AT_ONCE: u16 = 2;
const KEY: Key = Key::new(0x706f_6f6c);

/// What every process does to find the limit. Whoever comes first makes it.
fn limit(namespace: Namespace) -> Result<Semaphore, manyway_sem::Error> {
    namespace.set(KEY).create(&[AT_ONCE])?.sem(0)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    match &args[..] {
        [role, name] if role == "work" => work(name),
        _ => supervise(),
    }
}

fn work(name: &str) -> Result<(), Box<dyn Error>> {
    let permits = limit(Namespace::from_env()?)?;
    let permit = permits.acquire()?;
    println!("worker {name} works; {} of {AT_ONCE} permits are left", permits.value()?);
    if name == "0" {
        loop {
            thread::park(); // until it is killed
        }
    }
    thread::sleep(Duration::from_millis(200));
    drop(permit);
    Ok(())
}

fn supervise() -> Result<(), Box<dyn Error>> {
    let namespace = Namespace::private()?;
    let permits = limit(*namespace)?;

    let start = |name: u32| {
        let mut worker = Command::new(env::current_exe()?);
        worker.args(["work", &name.to_string()]).env("MANYWAY_DIR", namespace.dir()).stdout(Stdio::piped()).spawn()
    };
    let mut stuck = start(0)?;
    let mut line = String::new();
    BufReader::new(stuck.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    print!("{line}");
    let others = (1..WORKERS).map(start).collect::<Result<Vec<Child>, _>>()?;

    for holder in permits.set().holders()? {
        println!("process {} holds {}", holder.pid, holder.adj);
    }
    println!("worker 0 is killed");
    stuck.kill()?;
    stuck.wait()?;

    for worker in others {
        let done = worker.wait_with_output()?;
        print!("{}", String::from_utf8_lossy(&done.stdout));
        if !done.status.success() {
            return Err(format!("a worker failed: {}", done.status).into());
        }
    }
    println!("at the end {} of {AT_ONCE} permits are left", permits.value()?);
    assert_eq!(permits.value()?, AT_ONCE);
    Ok(())
}
