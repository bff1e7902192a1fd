//! The same trace by protection: every mapping of the file is made read-only, so that each store faults, and what does not store runs at full
//! speed. (A trap behind every instruction takes a hundred times as long where a debug exception leaves a virtual machine.)
//!
//! The handler carries the usual stores out itself, through another mapping of the file: moves, exchanges and compare-and-exchanges, the
//! latter by the same instruction. Any other is let through by one single step. System calls are caught on their way (system call user
//! dispatch): what needs a writable mapping is done through the other one, and what the kernel does to the file is taken down.

use std::ffi::c_void;
use std::fs;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind};
use libc::{c_int, c_long, siginfo_t, ucontext_t};

use super::{Event, MADV_REMOVE, Pending, TRAP_FLAG, Trace, Tracer, What, number_of};
use crate::image::Mapped;

const MADV_POPULATE_WRITE: i64 = 23;
const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const PAGE: u64 = 4096;
/// The flags that a comparison sets: CF, PF, AF, ZF, SF, OF.
const STATUS_FLAGS: u64 = 0x8d5;

/// A tracer at work and the mapping through which it stores.
struct Work<'a> {
    tracer: &'a mut Tracer,
    other: &'a Mapped,
    /// Pages that are writable for one instruction.
    open: Option<(u64, u64)>,
}

static WORK: AtomicPtr<Work<'static>> = AtomicPtr::new(ptr::null_mut());
/// 1: system calls that do not come from the C library are caught.
static CAUGHT: AtomicU8 = AtomicU8::new(0);

impl Tracer {
    /// What `call` stores into the file, as [`Tracer::trace`] has it, but for the number of instructions, which is not counted. `other` is a
    /// mapping that the call does not use. On threads of their own the call must not touch the file.
    pub fn trace_stores(&mut self, other: &Mapped, call: impl FnOnce()) -> io::Result<Trace> {
        self.watch = super::Watch::default();
        self.trace = Trace { instructions: 0, events: Vec::with_capacity(1 << 12), bytes: Vec::with_capacity(1 << 16) };
        self.find_mappings();
        self.mappings.retain(|m| m.start != other.address());
        let library = text_of_the_c_library()?;
        install();
        let mut work = Work { tracer: self, other, open: None };
        work.protect(libc::PROT_READ)?;
        let this: *mut Work<'_> = &raw mut work;
        let before = WORK.swap(this.cast(), Ordering::SeqCst);
        assert!(before.is_null(), "one tracer at a time");
        dispatch(Some(library))?;
        CAUGHT.store(1, Ordering::SeqCst);
        call();
        CAUGHT.store(0, Ordering::SeqCst);
        dispatch(None)?;
        WORK.store(ptr::null_mut(), Ordering::SeqCst);
        work.tracer.find_mappings();
        work.tracer.mappings.retain(|m| m.start != other.address());
        work.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(std::mem::take(&mut self.trace))
    }
}

impl Work<'_> {
    fn protect(&self, protection: c_int) -> io::Result<()> {
        for m in &self.tracer.mappings {
            protect(m.start, m.end, protection)?;
        }
        Ok(())
    }

    /// A store that faulted. False: it was none into the file.
    fn fault(&mut self, address: u64, regs: &mut [i64; 23]) -> bool {
        if self.tracer.offset_of(address).is_none() {
            // A mapping that the call has made has its model's protection.
            self.tracer.find_mappings();
            self.tracer.mappings.retain(|m| m.start != self.other.address());
            if self.tracer.offset_of(address).is_none() {
                return false;
            }
        }
        let ip = regs[libc::REG_RIP as usize] as u64;
        let known = self.tracer.decode(ip);
        self.tracer.foresee(&known, regs, false);
        assert!(!self.tracer.pending.is_empty(), "an instruction that faults and does not store, at {ip:#x}");
        let offset = self.tracer.pending[0].at;
        // SAFETY: the processor has fetched the instruction from there.
        let code = unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(ip as usize), (known.next - ip) as usize) };
        let instruction: Instruction = Decoder::with_ip(64, code, ip, DecoderOptions::NONE).decode();
        if carry_out(&instruction, self.other, offset, regs) {
            regs[libc::REG_RIP as usize] = known.next as i64;
            self.tracer.settle();
        } else {
            let (first, last) = (address & !(PAGE - 1), self.tracer.pending.iter().map(|p| p.address + p.len).max().unwrap_or(address));
            let end = last.next_multiple_of(PAGE).max(first + PAGE);
            protect(first, end, libc::PROT_READ | libc::PROT_WRITE).expect("its own mapping");
            self.open = Some((first, end));
            regs[libc::REG_EFL as usize] |= TRAP_FLAG;
        }
        true
    }

    /// Behind an instruction that was let through.
    fn trap(&mut self, regs: &mut [i64; 23]) {
        self.tracer.settle();
        if let Some((first, end)) = self.open.take() {
            protect(first, end, libc::PROT_READ).expect("its own mapping");
        }
        regs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }

    /// Makes a system call in the caller's stead, whose signals `mask` blocks.
    fn syscall(&mut self, regs: &mut [i64; 23], mask: &libc::sigset_t) {
        let arg = |r: c_int| regs[r as usize];
        let number = arg(libc::REG_RAX);
        let mut args = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9].map(arg);
        if number == libc::SYS_madvise
            && matches!(args[2], MADV_REMOVE | MADV_POPULATE_WRITE)
            && let Some(at) = self.tracer.offset_of(args[0] as u64)
        {
            args[0] = (self.other.address() + at) as i64;
            if args[2] == MADV_REMOVE {
                let (ip, old, len) = (arg(libc::REG_RIP) as u64, self.tracer.trace.bytes.len(), args[1] as u64);
                self.tracer.pending.push(Pending { what: What::Punched, ip, address: 0, at, len, old });
            }
        }
        let [a, b, c, d, e, f] = args;
        // A handler may interrupt a sleep, and be traced as well.
        let sleeps = number == libc::SYS_futex || number == libc::SYS_nanosleep;
        let mut blocked = *mask;
        if sleeps {
            // SAFETY: exchanges the mask by the interrupted code's.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut blocked) };
        }
        // SAFETY: what the call would have done itself, its pointers are its own.
        let r = unsafe { libc::syscall(number as c_long, a, b, c, d, e, f) };
        let result = if r == -1 { -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { r };
        if sleeps {
            // SAFETY: puts the handler's own mask back.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, ptr::null_mut()) };
        }
        regs[libc::REG_RAX as usize] = result;
        self.tracer.settle();
    }
}

/// Carries a store out through the other mapping. False: it is of an unusual kind.
fn carry_out(i: &Instruction, file: &Mapped, at: u64, regs: &mut [i64; 23]) -> bool {
    let size = i.memory_size().size();
    // The value of the register operand `n`, whole; none for the upper half of a 16-bit register.
    let place = |n: u32| {
        let r = i.op_register(n);
        (i.op_kind(n) == OpKind::Register
            && !matches!(r, iced_x86::Register::AH | iced_x86::Register::BH | iced_x86::Register::CH | iced_x86::Register::DH))
        .then(|| number_of(r.full_register()))
        .flatten()
    };
    match i.code() {
        Code::Mov_rm64_r64 | Code::Mov_rm32_r32 | Code::Mov_rm16_r16 | Code::Mov_rm8_r8 => {
            let Some(source) = place(1) else { return false };
            file.put(at, regs[source] as u64, size);
        }
        Code::Mov_rm64_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm16_imm16 | Code::Mov_rm8_imm8 => file.put(at, i.immediate(1), size),
        Code::Xchg_rm64_r64 | Code::Xchg_rm32_r32 => {
            let Some(source) = place(1) else { return false };
            let old = if size == 8 { file.u64(at) } else { file.u32(at).into() };
            file.put(at, regs[source] as u64, size);
            regs[source] = old as i64;
        }
        Code::Cmpxchg_rm64_r64 | Code::Cmpxchg_rm32_r32 => {
            let Some(source) = place(1) else { return false };
            let (mut rax, new, flags): (u64, u64, u64) = (regs[libc::REG_RAX as usize] as u64, regs[source] as u64, 0);
            let mut flags = flags;
            let p = file.pointer(at);
            // SAFETY: the word lies in the other mapping, which is writable; the instruction is the one that faulted.
            unsafe {
                if size == 8 {
                    std::arch::asm!("lock cmpxchg qword ptr [{p}], {new}", "pushfq", "pop {flags}",
                        p = in(reg) p, new = in(reg) new, flags = out(reg) flags, inout("rax") rax);
                } else {
                    std::arch::asm!("lock cmpxchg dword ptr [{p}], {new:e}", "pushfq", "pop {flags}",
                        p = in(reg) p, new = in(reg) new, flags = out(reg) flags, inout("rax") rax);
                }
            }
            regs[libc::REG_RAX as usize] = rax as i64;
            let efl = &mut regs[libc::REG_EFL as usize];
            *efl = *efl & !(STATUS_FLAGS as i64) | (flags & STATUS_FLAGS) as i64;
        }
        _ => return false,
    }
    true
}

fn protect(start: u64, end: u64, protection: c_int) -> io::Result<()> {
    // SAFETY: changes who may write a mapping of the file; faults come to the handler.
    let r = unsafe { libc::mprotect(ptr::with_exposed_provenance_mut::<c_void>(start as usize), (end - start) as usize, protection) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where the C library's code lies: its system calls are let through, the handlers' return among them.
fn text_of_the_c_library() -> io::Result<(u64, u64)> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|l| l.contains("r-xp") && l.contains("/libc.so"));
    let range = line.and_then(|l| l.split_ascii_whitespace().next()?.split_once('-'));
    let hex = |s| u64::from_str_radix(s, 16).ok();
    range.and_then(|(a, b)| Some((hex(a)?, hex(b)?))).ok_or_else(|| io::Error::other("the C library is not mapped"))
}

/// Catches system calls from outside a range, or no longer.
fn dispatch(but: Option<(u64, u64)>) -> io::Result<()> {
    // SAFETY: takes numbers and the address of a static byte.
    let r = unsafe {
        match but {
            Some((start, end)) => libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, start, end - start, CAUGHT.as_ptr()),
            None => libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0),
        }
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn install() {
    let handler = on_signal as extern "C" fn(c_int, *mut siginfo_t, *mut ucontext_t);
    for signal in [libc::SIGSEGV, libc::SIGTRAP, libc::SIGSYS] {
        // SAFETY: all zeros is a valid sigaction; the handler keeps to what is said there.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigfillset(&raw mut action.sa_mask);
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// The signal comes at a store, a system call or a single step of the traced call; that is never in the allocator.
extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let work = WORK.load(Ordering::Relaxed);
    // SAFETY: the kernel passes the context of the interrupted code; `trace_stores` has lent `work` for as long as `WORK` has it.
    let (regs, mask, work) = unsafe { (&mut (*context).uc_mcontext.gregs, &(*context).uc_sigmask, work.as_mut()) };
    let done = match (signal, work) {
        (libc::SIGTRAP, Some(work)) => {
            work.trap(regs);
            true
        }
        (libc::SIGSYS, Some(work)) => {
            work.syscall(regs, mask);
            true
        }
        // SAFETY: a fault has an address.
        (libc::SIGSEGV, Some(work)) => work.fault(unsafe { (*info).si_addr() } as u64, regs),
        _ => false,
    };
    if !done {
        // SAFETY: the fault comes again and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// The two ways find the same.
pub(super) fn same(a: &Trace, b: &Trace) -> bool {
    let key = |t: &Trace, e: &Event| (e.what, e.at, e.len, t.behind(e).to_vec());
    let all = |t: &Trace| t.events.iter().filter(|e| e.what != What::Watched).map(|e| key(t, e)).collect::<Vec<_>>();
    all(a) == all(b)
}
