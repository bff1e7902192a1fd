//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use manyway_sem::{Fairness, Limits, OpenOptions, Share};

use crate::exit::Status;
use crate::namespace::Choice;
use crate::people;

/// System V semaphores in user space: runs unmodified programs on them and shows who holds and who waits
#[derive(Debug, Parser)]
#[command(name = "manyway", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  manyway run -- perl worker.pl      run a program and all it starts on Manyway's semaphores
  manyway ls                         list the sets, with creator, holders and sleepers
  manyway show 32769                 one set: values, holders, sleepers, wait-for cycles
  manyway rm --stale --yes           remove what dead programs left
  manyway doctor perl                is the machine fit, is the namespace sound, will perl run on it?

Exit codes: 0 done, 1 failed, 2 wrong usage; `run` ends with the program's own code, or
125 not run, 126 not executable, 127 not found.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Run),
    Ls(Ls),
    Show(Show),
    Rm(Rm),
    Doctor(Doctor),
    Ns(Ns),
    Env(Env),
    Bench(Bench),
    Devel(Devel),
    Completions(Completions),
    Man(Man),
}

/// Run a program, and all that it starts, on Manyway's semaphores
///
/// Checks the namespace and the program first, then becomes the program: same process, same descriptors, same exit code.
#[derive(Debug, Args)]
#[command(
    override_usage = "manyway run [OPTIONS] -- PROGRAM [ARGUMENT]...",
    after_help = "\
Examples:
  manyway run -- perl worker.pl
  manyway run --private -- sh -c 'make test'            semaphores of its own, gone afterwards
  manyway run --ns web --limits 250,32000,32,512 -- apache2 -DFOREGROUND
  manyway run --no-kernel -- ./all-of-it.sh             nothing that it starts can use the kernel's semaphores
  manyway run --report -- ./all-of-it.sh                and at the end: who used which
  manyway run --ns web --share group:www-data -- apache2 -DFOREGROUND
  manyway run --ns ann/web -- ./worker                  ann's, who shares it

A namespace has its limits, its fairness and its sharing from the first `run` that names it.
Whoever shares a namespace can write all of its memory: the modes of the sets in it are kept between
programs that keep them, and are no protection from an attacker.
Programs that are static, set-user-id or for another machine cannot be given a library and are refused.
Without privileges, --no-kernel and --report keep set-user-id programs from gaining any (PR_SET_NO_NEW_PRIVS)."
)]
pub struct Run {
    #[command(flatten)]
    pub namespace: Choice,
    /// Use a new namespace that ends with its last process
    #[arg(long, conflicts_with_all = ["dir", "ns", "share"], help_heading = "Namespace")]
    pub private: bool,
    #[command(flatten)]
    pub settings: Settings,
    /// Start no watcher: sleepers then find the death of a holder within 50 ms instead of at once
    #[arg(long)]
    pub no_watcher: bool,
    /// Fail the kernel's semaphore calls (ENOSYS) of the program and all that it starts: whoever slips past Manyway is heard
    #[arg(long, help_heading = "Certainty")]
    pub no_kernel: bool,
    /// At the end say who used which semaphores, on standard error; with FILE, write it there as JSON
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", help_heading = "Certainty")]
    pub report: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// What belongs to a namespace.
#[derive(Debug, Args)]
pub struct Settings {
    /// Who gets a released unit while others sleep for it [default of a new namespace: strict]
    #[arg(long, value_enum, value_name = "RULE", help_heading = "Namespace")]
    pub fairness: Option<FairnessArg>,
    /// Who else may use the namespace: group:NAME, all, or none [default of a new namespace: none]
    #[arg(long, value_name = "WITH", value_parser = parse_share, help_heading = "Namespace")]
    pub share: Option<Share>,
    /// Limits as in kernel.sem: semaphores per set, semaphores, operations per call, sets [default of a new namespace: the kernel's]
    #[arg(long, value_name = "MSL,MNS,OPM,MNI", value_parser = parse_limits, help_heading = "Namespace")]
    pub limits: Option<Limits>,
}

impl Settings {
    /// For opening a namespace that has them, or gets them.
    pub fn options(&self) -> OpenOptions {
        OpenOptions { limits: self.limits, fairness: self.fairness.map(Into::into), share: self.share, ..OpenOptions::CREATE }
    }
}

/// List, change and remove namespaces
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway ns ls
  manyway ns set --ns web --share group:www-data
  manyway ns rm --ns web")]
pub struct Ns {
    #[command(subcommand)]
    pub command: NsCommand,
}

#[derive(Debug, Subcommand)]
pub enum NsCommand {
    Ls(NsLs),
    Set(NsSet),
    Rm(NsRm),
}

/// List your namespaces: who shares them, what is in them, what they cost
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway ns ls
  manyway ns ls --all --json | jq '.namespaces[] | select(.processes == 0).dir'")]
pub struct NsLs {
    /// Also those of other users, as far as you may see them
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Change a namespace that exists, also while it is used
///
/// Limits count from the next call on, in every program that uses the namespace. Sharing decides who gets in from now on: programs that use
/// it already keep it until they end. Fairness can be changed when nobody uses it.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["fairness", "share", "limits"]))]
#[command(after_help = "\
Examples:
  manyway ns set --ns web --limits 250,32000,100,512
  manyway ns set --ns web --fairness barging
  manyway ns set --ns web --share group:www-data
  manyway ns set --ns web --share none

What is beyond new limits stays. SEMOPM cannot become 1 in a namespace that is in use.")]
pub struct NsSet {
    #[command(flatten)]
    pub namespace: Choice,
    #[command(flatten)]
    pub settings: Settings,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Remove a namespace with all that is in it
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["dir", "ns"]))]
#[command(after_help = "\
Examples:
  manyway ns rm --ns web
  manyway ns rm --ns web --force      with sets in it, or in use

In programs that still use it, sleeping calls fail with EIDRM, later ones with EINVAL, and semget with ENOSYS:
they do not see the namespace that the next `run` makes under the name.")]
pub struct NsRm {
    #[command(flatten)]
    pub namespace: Choice,
    /// Also when there are sets in it or programs use it
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print what puts a program into a namespace, for a shell, a service or a container
///
/// Makes the namespace and installs the library first, as `run` does. Where `manyway run` can be used, use it: it also refuses programs that
/// cannot be preloaded, and starts the watcher.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eval \"$(manyway env --ns web)\"
  manyway env --ns web --format systemd > /etc/systemd/system/web.service.d/manyway.conf
  docker run $(manyway env --ns web --format docker) IMAGE")]
pub struct Env {
    #[command(flatten)]
    pub namespace: Choice,
    #[command(flatten)]
    pub settings: Settings,
    /// For whom
    #[arg(long, value_enum, default_value = "sh")]
    pub format: EnvFormat,
}

/// For whom the variables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EnvFormat {
    /// `export` commands of a shell
    Sh,
    /// A drop-in of a systemd service
    Systemd,
    /// Options of `docker run` or `podman run`
    Docker,
    /// An object
    Json,
}

/// List the semaphore sets, as `ipcs -s` does, with creator, holders and sleepers
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway ls
  manyway ls --ns web --json | jq '.sets[] | select(.sleepers > 0)'")]
pub struct Ls {
    #[command(flatten)]
    pub namespace: Choice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Check that this machine is fit, that the namespace is sound, and that a program will run on it; nothing is changed, no program is run
///
/// Of a program (a path, or a name on PATH) it follows scripts to their interpreters, looks into the file, asks the dynamic loader what it would
/// load, and says who of these uses semaphores. What a program loads and starts later can be seen only when it does: by `manyway run --report`.
#[derive(Debug, Args)]
#[command(
    override_usage = "manyway doctor [OPTIONS] [PROGRAM [ARGUMENT]...]",
    after_help = "\
Examples:
  manyway doctor
  manyway doctor --ns web apache2
  manyway doctor --json ./service | jq '.program.looks[] | select(.state == \"bad\")'
  manyway doctor --ns web --json | jq '.arena[] | select(.state == \"bad\")'

Exit codes: 0 nothing is wrong, 1 something is, 2 wrong usage."
)]
pub struct Doctor {
    #[command(flatten)]
    pub namespace: Choice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The program to look into; of its arguments only env's count
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Show one set: each semaphore's value, who holds it, who sleeps for it and since when, and who waits for whom in a circle
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway show 32769
  manyway show 32769 --json | jq '.waiting[].age_ms'")]
pub struct Show {
    /// The set's id, as `manyway ls` prints it
    pub id: i32,
    #[command(flatten)]
    pub namespace: Choice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Remove sets; their sleepers' calls fail with EIDRM
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway rm 32769 65538
  manyway rm --key 0x4d57
  manyway rm --stale          list what dead programs left
  manyway rm --stale --yes    and remove it

Stale: its creator is dead, no process holds it or sleeps for it, and no living process used it last.")]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub struct Rm {
    /// Ids, as `manyway ls` prints them
    #[arg(group = "which", value_name = "ID")]
    pub ids: Vec<i32>,
    /// The set with this key (decimal, or hexadecimal after 0x)
    #[arg(long, group = "which", value_name = "KEY", value_parser = parse_key, allow_negative_numbers = true)]
    pub key: Option<i32>,
    /// All sets that nobody alive uses
    #[arg(long, group = "which")]
    pub stale: bool,
    /// All sets
    #[arg(long, group = "which")]
    pub all: bool,
    /// With --stale or --all: do it, do not only list
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub namespace: Choice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Measure semaphores: the kernel's, Manyway's and POSIX's, side by side
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway bench uncontended
  manyway bench uncontended --backend kernel,manyway --json figures.json")]
pub struct Bench {
    #[command(flatten)]
    pub args: manyway_bench::cli::Args,
}

/// Install the header, the library and the pkg-config file for C programs that are linked with Manyway
///
/// Prints the directory of the pkg-config file. DESTDIR is put in front of the paths that are written, not of those in the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway devel /usr/local && ldconfig
  cc program.c $(PKG_CONFIG_PATH=$(manyway devel ~/.local) pkg-config --cflags --libs manyway)")]
pub struct Devel {
    /// Below which `include` and `lib` are, or are made
    #[arg(value_name = "PREFIX")]
    pub prefix: PathBuf,
    /// The library's directory, from PREFIX on
    #[arg(long, value_name = "DIR", default_value = "lib")]
    pub libdir: PathBuf,
}

/// Print a script that completes `manyway` in a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway completions bash > /usr/share/bash-completion/completions/manyway")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Print the manual page, or write the pages of all subcommands to a directory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  manyway man | man -l -
  manyway man /usr/local/share/man/man1")]
pub struct Man {
    /// Where to write manyway.1, manyway-run.1, …
    pub dir: Option<PathBuf>,
}

/// [`Fairness`] as an option's value.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FairnessArg {
    /// The first sleeper that fits, at once: the kernel's order
    Strict,
    /// Whoever comes first, until a sleeper has been passed over for about a millisecond
    Barging,
}

impl From<FairnessArg> for Fairness {
    fn from(arg: FairnessArg) -> Fairness {
        match arg {
            FairnessArg::Strict => Fairness::Strict,
            FairnessArg::Barging => Fairness::Barging,
        }
    }
}

/// The whole command line as clap knows it.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Parses the command line; `Err` is the code to end with, everything having been printed.
pub fn parse() -> Result<Command, ExitCode> {
    if let Some(run) = parse_run(std::env::args_os()) {
        return Ok(Command::Run(run));
    }
    match Cli::try_parse() {
        Ok(cli) => Ok(cli.command),
        Err(error) => {
            let _ = error.print();
            Err(match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                // The program's own codes begin at 0, so `run` says "not started" in its own way.
                _ if std::env::args_os().nth(1).is_some_and(|arg| arg == "run") => Status::NotRun.into(),
                _ => Status::Usage.into(),
            })
        }
    }
}

/// A right line of `run`, which stands in front of other programs' starts: without what it takes to know all the other subcommands (a
/// seventh of a millisecond). Of any other line nothing is said here.
fn parse_run(line: impl Iterator<Item = OsString>) -> Option<Run> {
    let mut line = line.skip(1).peekable();
    line.next_if(|word| word == "run")?;
    let run = Run::augment_args(clap::Command::new("run").no_binary_name(true));
    Run::from_arg_matches(&run.try_get_matches_from(line).ok()?).ok()
}

/// `group:NAME`, `all` or `none`.
fn parse_share(text: &str) -> Result<Share, String> {
    match (text, text.strip_prefix("group:")) {
        ("all", _) => Ok(Share::All),
        ("none", _) => Ok(Share::Nobody),
        (_, Some(group)) => people::group_id(group).map(Share::Group).ok_or_else(|| format!("there is no group {group:?}")),
        _ => Err("with whom: group:NAME, all or none".into()),
    }
}

fn parse_limits(text: &str) -> Result<Limits, String> {
    let numbers: Result<Vec<u32>, _> = text.split(',').map(|n| n.trim().parse()).collect();
    match numbers.as_deref() {
        Ok(&[msl, mns, opm, mni]) => Ok(Limits { msl, mns, opm, mni }),
        _ => Err("four numbers are needed, as in 32000,1024000000,500,32000".into()),
    }
}

/// Keys are 32 bits: `0xffffffff` and `-1` are the same one.
fn parse_key(text: &str) -> Result<i32, String> {
    let key = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse::<u32>().or_else(|_| text.parse::<i32>().map(|key| key as u32)),
    };
    match key.map(|key| key as i32) {
        Ok(0) => Err("key 0 is IPC_PRIVATE: sets without a key are named by their ids".into()),
        Ok(key) => Ok(key),
        Err(_) => Err("not a key: a decimal number of 32 bits, or a hexadecimal one after 0x".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn run_alone_is_parsed_as_among_the_others() {
        let lines: [&[&str]; 14] = [
            &["run", "true"],
            &["run", "--", "perl", "-e", "1"],
            &["run", "--private", "--no-watcher", "ls", "--private"],
            &["run", "--ns", "a", "--limits", "1,2,3,4", "--share=all", "--fairness", "barging", "--", "x"],
            &["run", "--report=f", "--no-kernel", "x"],
            &["run", "--report", "x", "--", "y"],
            &["run"],
            &["run", "--help"],
            &["run", "-h", "x"],
            &["run", "--private", "--ns", "a", "x"],
            &["run", "--limits", "1", "x"],
            &["run", "--no-such-option", "x"],
            &["ru", "x"],
            &["ls"],
        ];
        let mut right = 0;
        for line in lines {
            let line = || std::iter::once("manyway").chain(line.iter().copied()).map(OsString::from);
            let among = Cli::try_parse_from(line()).ok().map(|cli| cli.command).filter(|command| matches!(command, Command::Run(_)));
            let alone = parse_run(line()).map(Command::Run);
            assert_eq!(format!("{alone:?}"), format!("{among:?}"), "{:?}", line().collect::<Vec<_>>());
            right += usize::from(alone.is_some());
        }
        assert_eq!(right, 6);
    }

    #[test]
    fn keys() {
        assert_eq!(parse_key("0x4d57"), Ok(0x4d57));
        assert_eq!(parse_key("0xffffffff"), Ok(-1));
        assert_eq!(parse_key("4294967295"), Ok(-1));
        assert_eq!(parse_key("-1"), Ok(-1));
        assert!(parse_key("0").unwrap_err().contains("IPC_PRIVATE"));
        assert!(parse_key("0x1ffffffff").is_err());
        assert!(parse_key("key").is_err());
    }

    #[test]
    fn shares() {
        assert_eq!(parse_share("all"), Ok(Share::All));
        assert_eq!(parse_share("none"), Ok(Share::Nobody));
        assert_eq!(parse_share("group:root"), Ok(Share::Group(0)));
        assert_eq!(parse_share("group:7654321"), Ok(Share::Group(7654321)));
        for bad in ["", "root", "group:", "group:no-such-group-at-all", "ALL", "0666"] {
            parse_share(bad).unwrap_err();
        }
    }

    #[test]
    fn limits() {
        assert_eq!(parse_limits("250,32000,32,128"), Ok(Limits { msl: 250, mns: 32000, opm: 32, mni: 128 }));
        for bad in ["", "1,2,3", "1,2,3,4,5", "1,2,3,-4", "a,b,c,d"] {
            assert!(parse_limits(bad).is_err(), "{bad}");
        }
    }
}
