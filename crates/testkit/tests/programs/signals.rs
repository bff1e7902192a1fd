//! What languages test of their signals, in processes that use semaphores: handlers go through the library's trampolines there.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::Trial;

use crate::case::{Absent, Outcome, case, expect, number_after, program};
use crate::python::interpreter;
use crate::source::debian;
use crate::space::{Space, output};

pub fn cases() -> Vec<Trial> {
    let perl = program("perl", "perl").and_then(|_| program("prove", "perl")).and_then(|prove| Ok((prove, perl_tests()?)));
    let ruby = program("ruby", "ruby").and_then(|ruby| Ok((ruby, ruby_tests()?)));
    vec![
        case("perl_signal_tests", perl, run_perl),
        case("python_signal_tests", python_with_tests(), run_python),
        case("ruby_signal_tests", ruby, run_ruby),
    ]
}

/// Perl's own tests of signals and of what is interrupted by them; every perl among them has made a semaphore call before.
fn run_perl((prove, source): (PathBuf, PathBuf), space: &Space) -> Outcome<u64> {
    let touch = "package Touch; use IPC::SysV qw(IPC_PRIVATE IPC_RMID); my $s = semget(IPC_PRIVATE, 1, 0600);
        semop($s, pack('s3', 0, 1, 0)) or die $!; semctl($s, 0, IPC_RMID, 0); 1;";
    fs::write(space.scratch().join("Touch.pm"), touch)?;
    // The core's tests look for what is in no source, only in an installed perl.
    let installed = output(Command::new("perl").args(["-MConfig", "-e", "print $Config{archlibexp}"]))?;
    match symlink(installed.trim(), source.join("lib")) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e.into()),
        _ => {}
    }
    let core = ["alarm", "kill0", "sigdispatch", "sigsystem"].map(|test| format!("t/op/{test}.t"));
    let posix = ["sigaction", "sigset", "waitpid"].map(|test| format!("ext/POSIX/t/{test}.t"));
    let mut command = space.command(prove);
    command.args(core.iter().chain(&posix).map(|test| source.join(test))).current_dir(&source);
    command.env("PERL5OPT", format!("-I{} -MTouch", space.scratch().display()));
    let said = output(&mut command)?;
    expect(said.contains("Result: PASS"), "not all passed", &said)?;
    expect(number_after(&said, "Tests=")? >= 150, "some tests did not run", &said)?;
    Ok(7)
}

/// Python's own.
fn run_python(python: PathBuf, space: &Space) -> Outcome<u64> {
    let touch = "import ctypes\nlibc = ctypes.CDLL(None)\nset = libc.semget(0, 1, 0o600)\n\
        assert libc.semop(set, (ctypes.c_short * 3)(0, 1, 0), 1) == 0\nlibc.semctl(set, 0, 0)\n";
    fs::write(space.scratch().join("sitecustomize.py"), touch)?;
    let mut command = space.command(python);
    command.args(["-m", "test", "test_signal", "test_threadsignals"]);
    let said = output(command.env("PYTHONPATH", space.scratch()).env("PYTHONDONTWRITEBYTECODE", "1"))?;
    expect(said.contains("SUCCESS") && said.contains("2 tests OK"), "not all passed", &said)?;
    Ok(1)
}

/// Ruby's own.
fn run_ruby((ruby, source): (PathBuf, PathBuf), space: &Space) -> Outcome<u64> {
    let touch = "require 'fiddle'
        c = Fiddle.dlopen(nil)
        type = ->(a) { a.is_a?(String) ? Fiddle::TYPE_VOIDP : Fiddle::TYPE_INT }
        call = ->(name, *a) { Fiddle::Function.new(c[name], a.map(&type), Fiddle::TYPE_INT).call(*a) }
        set = call['semget', 0, 1, 0600]
        call['semop', set, [0, 1, 0].pack('s3'), 1] == 0 or raise
        call['semctl', set, 0, 0]\n";
    fs::write(space.scratch().join("touch.rb"), touch)?;
    let mut command = space.command(ruby);
    command.args(["-I", "tool/lib", "tool/test/runner.rb", "test/ruby/test_signal.rb"]).current_dir(&source);
    let said = output(command.env("RUBYOPT", format!("-r{}", space.scratch().join("touch.rb").display())))?;
    expect(said.contains(" 0 failures, 0 errors"), "not all passed", &said)?;
    let tests = said.lines().find_map(|line| line.split_once(" tests, ")?.0.parse::<u64>().ok());
    expect(tests.is_some_and(|n| n >= 20), "some tests did not run", &said)?;
    Ok(1)
}

fn perl_tests() -> Result<PathBuf, Absent> {
    let patterns = ["*/t/test.pl", "*/t/op/alarm.t", "*/t/op/kill0.t", "*/t/op/sig*.t", "*/ext/POSIX/t/*.t", "*/ext/POSIX/lib/*"];
    debian("perl", "perl-signals", &patterns)
}

/// The tests of the Ruby that Debian's package `ruby` brings.
fn ruby_tests() -> Result<PathBuf, Absent> {
    let absent = |e| Absent::known_by("ruby", &e);
    let version = output(Command::new("ruby").args(["-e", "print RUBY_VERSION[/\\d+\\.\\d+/]"])).map_err(absent)?;
    let name = format!("ruby{version}");
    debian(&name, &name, &["*/test/ruby/test_signal.rb", "*/tool/lib/*", "*/tool/test/runner.rb", "*/test/lib/*"])
}

fn python_with_tests() -> Result<PathBuf, Absent> {
    let python = interpreter()?;
    let has = output(Command::new(&python).args(["-c", "import test.test_signal"]));
    has.map(|_| python).map_err(|e| Absent::known_by("libpython3-testsuite", &e))
}
