//! `run --report`: the program as a child, its exit code as our own, its signals handed on, and the kernel's semaphore calls of all
//! that it starts seen by a seccomp listener.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use manyway_sem::abi::{REPORT_COMMAND, REPORT_ID};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recvmsg, sendmsg, socketpair,
};

use crate::kernel_calls::{self, Verdict};
use crate::report::Report;

/// Runs the command to its end, and to the end of all that it started; the code to end with.
pub fn run(mut command: Command, report: Report) -> io::Result<(i32, Report)> {
    let report = Arc::new(Mutex::new(report));
    let signals = Signals::block()?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let program = kernel_calls::filter(Verdict::Ask);
    let before = signals.before;
    let prepare = move || {
        before.restore()?;
        // What cannot be watched is run all the same; the report says so.
        if let Ok(Some(listener)) = kernel_calls::install(&program, Verdict::Ask) {
            send(&theirs, &listener)?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor takes a lock.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(prepare);
    }
    let mut child = command.spawn()?;
    drop(command); // And with it the other end of the socket.
    let listener = receive(&ours);
    let watching = match listener {
        Ok(listener) => {
            let report = Arc::clone(&report);
            Some(thread::spawn(move || answer(&listener, &report)))
        }
        Err(e) => {
            lock(&report).blind = Some(format!("the kernel lets nobody listen to system calls here ({e})"));
            None
        }
    };
    let status = signals.until_end_of(&mut child)?;
    if let Some(watching) = watching
        && !watching.is_finished()
    {
        // Whoever is left would find nobody who answers.
        thread::sleep(std::time::Duration::from_millis(100));
        if !watching.is_finished() {
            eprintln!(
                "manyway: the program has ended and some that it started have not; the report comes when they end (or after an interrupt)"
            );
        }
        signals.until(|| watching.is_finished())?;
    }
    let report = std::mem::take(&mut *lock(&report));
    Ok((code_of(status), report))
}

fn lock(report: &Mutex<Report>) -> std::sync::MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As a shell would tell it.
fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

fn send(socket: &OwnedFd, descriptor: &OwnedFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    buffer.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"l")], &mut buffer, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The listener, if the child could make one: it has sent it before it became the program.
fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut buffer, RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC)?;
    for message in buffer.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(listener) = descriptors.next()
        {
            return Ok(listener);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Answers until nobody is left under the filter.
fn answer(listener: &OwnedFd, report: &Mutex<Report>) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let events = fds[0].revents();
        if events.contains(PollFlags::IN) {
            answer_one(listener, report);
        } else if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            return;
        }
    }
}

#[allow(unsafe_code)]
fn answer_one(listener: &OwnedFd, report: &Mutex<Report>) {
    // SAFETY: integers, for which zero is a value; the kernel wants it zeroed.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one such structure. The caller may have died meanwhile: then there is nothing to answer.
    if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) } != 0 {
        return;
    }
    let (arch, number, arguments) = (call.data.arch, call.data.nr as u32, call.data.args);
    let name = kernel_calls::name(arch, number, arguments[0]);
    // SAFETY: as above.
    let mut reply: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
    reply.id = call.id;
    let mut report = lock(report);
    if name == "semctl" && kernel_calls::is_native(arch) && (arguments[0] as i32, arguments[2] as i32) == (REPORT_ID, REPORT_COMMAND) {
        report.uses_manyway(process_of(call.pid));
    } else {
        report.uses_kernel(process_of(call.pid), name, kernel_calls::is_native(arch));
        if report.refused {
            reply.error = -libc::ENOSYS;
        } else {
            reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        }
    }
    // SAFETY: the kernel reads one such structure; as above.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut reply) };
}

/// The listener is told of threads.
fn process_of(thread: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok()).unwrap_or(thread)
}

/// A signal mask.
#[derive(Clone, Copy)]
struct Mask(libc::sigset_t);

impl Mask {
    #[allow(unsafe_code)]
    fn restore(&self) -> io::Result<()> {
        // SAFETY: the mask is one that the C library has filled.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }
}

/// Signals that are taken one by one instead of by handlers; the program gets those that somebody sent to us. What a terminal sends, it sends to
/// both.
struct Signals {
    waited_for: libc::sigset_t,
    before: Mask,
}

impl Signals {
    const HANDED_ON: [i32; 6] = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

    #[allow(unsafe_code)]
    fn block() -> io::Result<Signals> {
        let mut before = MaybeUninit::uninit();
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset fills the one mask, pthread_sigmask the other.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in Self::HANDED_ON.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Signals { waited_for: set.assume_init(), before: Mask(before.assume_init()) }),
                e => Err(io::Error::from_raw_os_error(e)),
            }
        }
    }

    /// The next signal and, if a process sent it, that process; None after 50 ms.
    #[allow(unsafe_code)]
    fn next(&self) -> Option<(i32, Option<i32>)> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let patience = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        // SAFETY: the kernel fills the structure.
        let signal = unsafe { libc::sigtimedwait(&raw const self.waited_for, info.as_mut_ptr(), &raw const patience) };
        if signal < 0 {
            return None;
        }
        // SAFETY: filled; of what a process sent the sender is there.
        let sender = unsafe {
            let info = info.assume_init();
            (info.si_code <= 0).then(|| info.si_pid())
        };
        Some((signal, sender))
    }

    /// Waits for the child's end and hands signals on to it.
    #[allow(unsafe_code)]
    fn until_end_of(&self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if let Some((signal, Some(sender))) = self.next()
                && signal != libc::SIGCHLD
                && sender != child.id() as i32
            {
                // SAFETY: a child that has not been waited for keeps its number.
                unsafe { libc::kill(child.id() as i32, signal) };
            }
        }
    }

    /// Waits until `done`, or for a signal.
    fn until(&self, done: impl Fn() -> bool) -> io::Result<()> {
        while !done() {
            if self.next().is_some_and(|(signal, _)| signal != libc::SIGCHLD) {
                break;
            }
        }
        Ok(())
    }
}
