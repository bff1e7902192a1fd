//! The kernel's semaphore calls of a program and of all that it starts: refused, or told of, by a seccomp filter.
//!
//! The library makes none of these calls, so whoever makes one has slipped past it: a static program, one without the C library, one
//! whose privileges make the loader ignore LD_PRELOAD.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::{sock_filter, sock_fprog};

/// What happens to a call of the kernel's semaphores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fails with ENOSYS.
    Refuse,
    /// Whoever holds the listener decides.
    Ask,
}

/// One machine's calls.
struct Abi {
    /// AUDIT_ARCH_…
    arch: u32,
    /// Bits of the number that are looked at.
    mask: u32,
    /// semget, semop, semctl, semtimedop, and what came later.
    calls: &'static [u32],
    /// ipc(2), whose first argument is 1 to 4 for semaphores.
    ipc: Option<u32>,
}

const ALL_BITS: u32 = !0;

/// This machine's, first its own: 64 bits, then 32.
#[cfg(target_arch = "x86_64")]
const ABIS: [Abi; 2] = [
    // x32's numbers have bit 30 set.
    Abi { arch: 0xc000_003e, mask: !0x4000_0000, calls: &[64, 65, 66, 220], ipc: None },
    Abi { arch: 0x4000_0003, mask: ALL_BITS, calls: &[393, 394, 420], ipc: Some(117) },
];
#[cfg(target_arch = "aarch64")]
const ABIS: [Abi; 2] = [
    Abi { arch: 0xc000_00b7, mask: ALL_BITS, calls: &[190, 191, 192, 193], ipc: None },
    Abi { arch: 0x4000_0028, mask: ALL_BITS, calls: &[298, 299, 300, 312, 420], ipc: None },
];

/// Offsets in `struct seccomp_data`; the first argument's low half on a little-endian machine.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// The name of a call, as the listener is told of it.
pub fn name(arch: u32, number: u32, first: u64) -> &'static str {
    const NAMES_64: [(u32, &str); 8] = [
        (64, "semget"),
        (65, "semop"),
        (66, "semctl"),
        (220, "semtimedop"),
        (190, "semget"),
        (191, "semctl"),
        (192, "semtimedop"),
        (193, "semop"),
    ];
    const NAMES_32: [(u32, &str); 8] = [
        (393, "semget"),
        (394, "semctl"),
        (420, "semtimedop"),
        (298, "semop"),
        (299, "semget"),
        (300, "semctl"),
        (312, "semtimedop"),
        (0, ""),
    ];
    let Some(abi) = ABIS.iter().find(|abi| abi.arch == arch) else { return "a semaphore call" };
    if abi.ipc == Some(number) {
        return match first & 0xffff {
            1 => "semop",
            2 => "semget",
            3 => "semctl",
            _ => "semtimedop",
        };
    }
    let names = if arch == ABIS[0].arch { NAMES_64 } else { NAMES_32 };
    names.iter().find(|(n, _)| *n == number & abi.mask).map_or("a semaphore call", |(_, name)| name)
}

/// True for the calls of 64-bit programs.
pub fn is_native(arch: u32) -> bool {
    arch == ABIS[0].arch
}

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// If the accumulator is `k`, the next one; else `over` are left out.
const fn unless(code: u32, k: u32, over: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | code | libc::BPF_K) as u16, jt: 0, jf: over, k }
}

const fn load(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// The filter's program.
pub fn filter(verdict: Verdict) -> Vec<sock_filter> {
    let action = match verdict {
        Verdict::Refuse => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        Verdict::Ask => libc::SECCOMP_RET_USER_NOTIF,
    };
    let answer = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    let mut program = Vec::new();
    for abi in &ABIS {
        let mut own = vec![load(NUMBER), statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, abi.mask)];
        for &call in abi.calls {
            own.extend([unless(libc::BPF_JEQ, call, 1), answer(action)]);
        }
        if let Some(ipc) = abi.ipc {
            // ipc's first argument has a version in its upper half.
            own.extend([
                unless(libc::BPF_JEQ, ipc, 5),
                load(FIRST_ARGUMENT),
                statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xffff),
            ]);
            own.extend([unless(libc::BPF_JGE, 1, 2), sock_filter { jt: 1, jf: 0, ..unless(libc::BPF_JGT, 4, 0) }, answer(action)]);
        }
        own.push(answer(libc::SECCOMP_RET_ALLOW));
        program.extend([load(ARCH), unless(libc::BPF_JEQ, abi.arch, own.len() as u8)]);
        program.append(&mut own);
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program
}

/// Puts the calling thread, and all that it starts, under the filter. With [`Verdict::Ask`], the listener.
///
/// Who may not install a filter otherwise gives up gaining privileges by set-user-id programs (PR_SET_NO_NEW_PRIVS). Only system calls: it may run
/// between fork and exec.
#[allow(unsafe_code)]
pub fn install(program: &[sock_filter], verdict: Verdict) -> io::Result<Option<OwnedFd>> {
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let flags = if verdict == Verdict::Ask { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    // SAFETY: the kernel copies the program, which lives through the call.
    let set = || match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) } {
        -1 => Err(io::Error::last_os_error()),
        fd => Ok(fd),
    };
    let fd = set().or_else(|e| {
        if e.raw_os_error() != Some(libc::EACCES) {
            return Err(e);
        }
        rustix::thread::set_no_new_privs(true)?;
        set()
    })?;
    // SAFETY: with that flag the kernel has made this descriptor for us.
    Ok((verdict == Verdict::Ask).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program on a call as the kernel would.
    fn run(program: &[sock_filter], arch: u32, number: u32, first: u32) -> u32 {
        let (mut at, mut a) = (0, 0u32);
        loop {
            let i = program[at];
            at += 1;
            let code = u32::from(i.code);
            let jump = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
            match code & 7 {
                libc::BPF_LD => a = [number, arch, 0, 0, first][i.k as usize / 4],
                libc::BPF_ALU => a &= i.k,
                libc::BPF_RET => return i.k,
                _ => match code & 0xf0 {
                    libc::BPF_JEQ => at += jump(a == i.k),
                    libc::BPF_JGE => at += jump(a >= i.k),
                    libc::BPF_JGT => at += jump(a > i.k),
                    other => panic!("jump {other}"),
                },
            }
        }
    }

    #[test]
    fn semaphore_calls_and_no_others() {
        let program = filter(Verdict::Refuse);
        let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        for abi in &ABIS {
            for number in 0..600 {
                let expected = if abi.calls.contains(&number) { refused } else { libc::SECCOMP_RET_ALLOW };
                for first in 0..7 {
                    let is_ipc = abi.ipc == Some(number) && (1..=4).contains(&first);
                    let expected = if is_ipc { refused } else { expected };
                    assert_eq!(run(&program, abi.arch, number, first), expected, "{:x} {number} {first}", abi.arch);
                    assert_eq!(run(&program, abi.arch, number, first | 1 << 16), expected, "{:x} {number} {first}", abi.arch);
                }
            }
        }
        assert_eq!(run(&program, 0x1234, 64, 1), libc::SECCOMP_RET_ALLOW);
        assert_eq!(run(&filter(Verdict::Ask), ABIS[0].arch, ABIS[0].calls[0], 0), libc::SECCOMP_RET_USER_NOTIF);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(run(&program, ABIS[0].arch, 64 | 0x4000_0000, 0), refused, "x32");
    }

    #[test]
    fn every_call_has_a_name() {
        for abi in &ABIS {
            for &number in abi.calls {
                assert!(name(abi.arch, number, 0).starts_with("sem"), "{:x} {number}", abi.arch);
            }
            if let Some(ipc) = abi.ipc {
                let names: Vec<_> = (1..=4).map(|first| name(abi.arch, ipc, first)).collect();
                assert_eq!(names, ["semop", "semget", "semctl", "semtimedop"]);
            }
        }
    }
}
