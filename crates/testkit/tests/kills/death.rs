//! The ways to die in the middle of a call.

use std::ffi::{CString, c_char};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;

use manyway_sem::abi::SEM_UNDO;
use manyway_testkit::step::Stepped;

use crate::cases::op;
use crate::cgroup::Cgroup;
use crate::live::{Page, Sems, nap};

/// How the process, or the thread, in the call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// SIGKILL.
    Kill,
    /// Another thread of the process executes a program that goes on with the same semaphores.
    Exec,
    /// Another thread executes one that knows nothing of them: its environment is empty.
    ExecEmptied,
    /// The same with a program that is linked statically.
    ExecStatic,
    /// Another thread allocates until the kernel kills the process.
    OutOfMemory,
    /// SIGKILL; the kernel takes the memory away before the threads can end, as its out-of-memory reaper does: nothing marks the end of the
    /// threads then.
    Reaped,
}

impl Death {
    pub const ALL: [Death; 6] = [Death::Kill, Death::Exec, Death::ExecEmptied, Death::ExecStatic, Death::OutOfMemory, Death::Reaped];

    /// Its name on the command line and in the list of tests.
    pub const fn name(self) -> &'static str {
        match self {
            Death::Kill => "kill",
            Death::Exec => "exec",
            Death::ExecEmptied => "exec_emptied",
            Death::ExecStatic => "exec_static",
            Death::OutOfMemory => "out_of_memory",
            Death::Reaped => "reaped",
        }
    }
    /// The process lives on as another program.
    pub const fn is_exec(self) -> bool {
        matches!(self, Death::Exec | Death::ExecEmptied | Death::ExecStatic)
    }
    /// A second thread of the process is needed.
    pub const fn needs_second(self) -> bool {
        self.is_exec() || matches!(self, Death::OutOfMemory)
    }
}

/// What [`Death`]s need of a stage.
pub struct Means {
    pub death: Death,
    /// The program to execute.
    image: Image,
    group: Option<Cgroup>,
}

/// Orders to the second thread.
const WAIT: u32 = 0;
const EXECUTE: u32 = 1;
const ALLOCATE: u32 = 2;

/// The first argument of this program when it is what an exec leads to.
pub const IMAGE: &str = "image-of-kills";

/// A program with its arguments and environment, ready to be executed: what runs between fork and exec allocates nothing.
pub struct Image {
    args: Vec<CString>,
    env: Vec<CString>,
}

impl Image {
    fn new(args: &[&[u8]], inherit: bool) -> Image {
        let c = |b: &[u8]| CString::new(b).expect("no NUL in it");
        let env = std::env::vars_os().filter(|_| inherit);
        Image {
            args: args.iter().map(|a| c(a)).collect(),
            env: env.map(|(k, v)| c(&[k.as_bytes(), b"=", v.as_bytes()].concat())).collect(),
        }
    }
    fn execute(&self) {
        let pointers = |all: &[CString]| all.iter().map(|a| a.as_ptr()).chain([ptr::null()]).collect::<Vec<*const c_char>>();
        let (args, env) = (pointers(&self.args), pointers(&self.env));
        // SAFETY: both arrays end with a null and live over the call.
        unsafe { libc::execve(args[0], args.as_ptr(), env.as_ptr()) };
    }
}

impl Means {
    /// `dir`: the namespace.
    pub fn new(death: Death, sems: Sems, dir: &std::path::Path) -> Result<Means, String> {
        let via = format!("{:?}", sems.via);
        let image = match death {
            Death::ExecEmptied => Image::new(&[b"/bin/sleep", b"1000"], false),
            Death::ExecStatic => Image::new(&[static_program(dir)?.as_os_str().as_bytes()], true),
            _ => Image::new(&[b"/proc/self/exe", IMAGE.as_bytes(), via.as_bytes(), dir.as_os_str().as_bytes()], true),
        };
        let group = if death == Death::OutOfMemory { Some(Cgroup::new(LIMIT)?) } else { None };
        Ok(Means { death, image, group })
    }

    /// In the dying one, before its call: the thread that will end it.
    pub fn prepare(&'static self, page: &'static Page) {
        page.second.store(WAIT, SeqCst);
        if self.death.needs_second() {
            std::thread::spawn(move || {
                loop {
                    match page.second.load(SeqCst) {
                        WAIT => nap(200),
                        EXECUTE => {
                            self.image.execute();
                            page.second.store(WAIT, SeqCst);
                        }
                        _ => allocate(),
                    }
                }
            });
        }
    }

    /// Ends the stepped call. True: by what was meant (the memory may be taken away too late).
    pub fn inflict(&self, victim: &Stepped, page: &Page) -> Result<bool, String> {
        let pid = victim.pid();
        match self.death {
            Death::Kill => victim.kill(),
            Death::Exec | Death::ExecEmptied | Death::ExecStatic => {
                let before = program_of(pid);
                page.second.store(EXECUTE, SeqCst);
                wait_until("the other thread does not execute", || program_of(pid) != before)?;
            }
            Death::OutOfMemory => {
                let group = self.group.as_ref().ok_or("no cgroup")?;
                let before = group.kills()?;
                group.add(pid)?;
                page.second.store(ALLOCATE, SeqCst);
                wait_until("the kernel does not kill for memory", || group.kills().is_ok_and(|n| n > before))?;
            }
            Death::Reaped => return Ok(kill_and_reap(victim)),
        }
        Ok(true)
    }
}

/// What a process in the cgroup may have.
const LIMIT: u64 = 24 << 20;

fn wait_until(otherwise: &str, what: impl Fn() -> bool) -> Result<(), String> {
    let deadline = std::time::Instant::now() + crate::live::HANG;
    while !what() {
        if std::time::Instant::now() > deadline {
            return Err(otherwise.to_owned());
        }
        nap(100);
    }
    Ok(())
}

/// Something that execve changes, and nothing else does: where the program's arguments lie.
fn program_of(pid: u32) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
    // Fields 48 and 49 (arg_start, arg_end), counted from the name, which is the second.
    Some((fields.get(45)?.to_string(), fields.get(46)?.to_string()))
}

fn allocate() {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE);
    // SAFETY: a new mapping, left alone.
    unsafe { libc::mmap(ptr::null_mut(), 1 << 20, access, flags, -1, 0) };
}

/// Kills a process that runs on this thread's processor, and only there, only when this thread sleeps; before it gets to run, its memory is taken
/// away. process_mrelease(2) does what the out-of-memory reaper does, by the same function of the kernel's. False: it came too late.
fn kill_and_reap(victim: &Stepped) -> bool {
    let pid = victim.pid() as libc::pid_t;
    // SAFETY: both calls take numbers; a descriptor that they return is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        assert!(fd >= 0, "a pidfd of a child");
        let fd = OwnedFd::from_raw_fd(fd);
        victim.kill();
        libc::syscall(libc::SYS_process_mrelease, fd.as_raw_fd(), 0) == 0
    }
}

/// Keeps this process, and the children that it steps, on the processor where it is: they take turns, which is faster there.
pub fn stay_here() {
    // SAFETY: a plain structure, for which all zeros is a value, that lives over the call.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
    }
}
/// Lets this process run anywhere.
pub fn go_anywhere() {
    // SAFETY: as above.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut all));
        libc::sched_setaffinity(0, size_of_val(&all), &raw const all);
    }
}

/// Puts this process before all others of its processor; its children are ordinary processes again.
pub fn take_precedence() -> Result<(), String> {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure lives over the call.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const first) } != 0 {
        return Err(format!("no precedence over other processes: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

/// A program without a C library and without a dynamic linker, which sleeps.
fn static_program(dir: &std::path::Path) -> Result<PathBuf, String> {
    let source = dir.join("sleep.c");
    let program = source.with_extension("");
    // pause(2) by its number.
    fs::write(&source, "void _start(void) { for (;;) __asm__ volatile (\"syscall\" :: \"a\"(34) : \"rcx\", \"r11\", \"memory\"); }\n")
        .map_err(|e| e.to_string())?;
    let mut cc = std::process::Command::new("cc");
    let built = cc.args(["-static", "-nostdlib", "-fno-stack-protector", "-o"]).arg(&program).arg(&source).output();
    match built {
        Ok(out) if out.status.success() => Ok(program),
        Ok(out) => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        Err(e) => Err(format!("cc: {e}")),
    }
}

/// What the executed program does: it uses the semaphores, says so on semaphore 3, and stays.
pub fn image(sems: Sems) -> ! {
    let id = sems.find().expect("the stage's set");
    for _ in 0..5 {
        let _ = sems.op(id, &[op(0, -1, SEM_UNDO)]).and_then(|()| sems.op(id, &[op(0, 1, SEM_UNDO)]));
    }
    let _ = sems.op(id, &[op(3, 100, SEM_UNDO)]);
    loop {
        nap(1_000_000);
    }
}
