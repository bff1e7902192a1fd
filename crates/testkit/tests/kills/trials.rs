//! The list of tests. Each is a stage, in a process of its own: that has one thread, may be preloaded, and is given up when it hangs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_testkit::{manyway_command, preload_library};

use crate::cgroup::Cgroup;
use crate::death::{Death, IMAGE, image};
use crate::live::{Sems, Via};
use crate::stage::{Stage, Tally};
use crate::{FEW, deaths};

/// The first argument of this program when it is a stage.
const STAGE: &str = "stage-of-kills";

static TOTAL: Mutex<Vec<Tally>> = Mutex::new(Vec::new());

pub fn main() {
    let args: Vec<_> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some(STAGE) => return stage(&args[2], &args[3], Path::new(&args[4])),
        Some(IMAGE) => image(Sems::open(Path::new(&args[3]), via(&args[2]))),
        _ => {}
    }
    let mut args = Arguments::from_args();
    // The stages sleep most of the time.
    args.test_threads = args.test_threads.or(Some(4));
    let all = [Via::Crate, Via::Library].into_iter().flat_map(|via| Death::ALL.map(|death| (via, death)));
    // To a program that is linked statically an environment says as little as an empty one to another: one of them each.
    let alike = |(via, death)| matches!((via, death), (Via::Crate, Death::ExecEmptied) | (Via::Library, Death::ExecStatic));
    let trials = all.filter(|&pair| deaths() > FEW || !alike(pair)).map(|(via, death)| trial(via, death));
    let conclusion = libtest_mimic::run(&args, trials.collect());
    let total = TOTAL.lock().expect("no panic while held");
    let sum = |f: fn(&Tally) -> usize| total.iter().map(f).sum::<usize>();
    let worst = |f: fn(&Tally) -> Duration| total.iter().map(f).max().unwrap_or_default().as_millis();
    println!(
        "proof: kills: {} deaths in the middle of calls, {} stages, the contender went on after at most {} ms, the sleeper after {} ms, {} violations",
        sum(|t| t.deaths),
        total.len(),
        worst(|t| t.contender),
        worst(|t| t.sleeper),
        conclusion.num_failed,
    );
    conclusion.exit();
}

fn via(name: &str) -> Via {
    if name == format!("{:?}", Via::Library) { Via::Library } else { Via::Crate }
}

fn trial(via: Via, death: Death) -> Trial {
    let name = format!("{}_{}", format!("{via:?}").to_lowercase(), death.name());
    let lacking = match death {
        Death::OutOfMemory => Cgroup::new(1 << 30).err(),
        Death::Reaped if !nix::unistd::geteuid().is_root() => Some("only root may put a process before all others".into()),
        _ => None,
    };
    match lacking {
        None => Trial::test(name, move || run(via, death)),
        Some(why) => Trial::test(name, || Ok(())).with_kind(why).with_ignored_flag(true),
    }
}

fn run(via: Via, death: Death) -> Result<(), Failed> {
    manyway_command()?;
    let dir = tempfile::tempdir_in("/dev/shm")?;
    // What runs the namespace makes it first.
    Sems::open(dir.path(), Via::Crate);
    let mut command = Command::new("/proc/self/exe");
    command.args([STAGE, &format!("{via:?}"), death.name()]).arg(dir.path()).stdin(Stdio::null());
    if via == Via::Library {
        command.env("LD_PRELOAD", preload_library()?).env("MANYWAY_DIR", dir.path());
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> =
        said.lines().find_map(|l| l.strip_prefix("tally ")).map_or(vec![], |l| l.split(' ').flat_map(str::parse).collect());
    let [deaths, late, contender, sleeper] = numbers[..] else {
        return Err(format!("{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    };
    if deaths == 0 || late * 2 > deaths {
        return Err(format!("{late} of {deaths} died otherwise than meant").into());
    }
    let (contender, sleeper) = (Duration::from_micros(contender), Duration::from_micros(sleeper));
    println!("{via:?}, {}: {deaths} deaths, {late} of them otherwise; worst: contender {contender:?}, sleeper {sleeper:?}", death.name());
    TOTAL.lock().expect("no panic while held").push(Tally { deaths: deaths as usize, late: late as usize, contender, sleeper });
    Ok(())
}

fn stage(via_name: &str, death: &str, dir: &Path) {
    let death = Death::ALL.into_iter().find(|d| d.name() == death).expect("a way to die");
    let filter = std::env::var("MANYWAY_KILLS_CASE").unwrap_or_default();
    let played = Stage::new(Sems::open(dir, via(via_name)), death, dir).and_then(|s| s.play(&filter));
    match played {
        Ok(t) => println!("tally {} {} {} {}", t.deaths, t.late, t.contender.as_micros(), t.sleeper.as_micros()),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    }
}
