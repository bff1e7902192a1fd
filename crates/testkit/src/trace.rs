//! What a piece of this program stores into a file that it has mapped: found by executing it instruction by instruction.
//!
//! The processor's trap flag stops the thread behind each instruction, in a signal handler of its own. The handler decodes the next
//! instruction; where that one writes into the file (through whatever mapping of it), the bytes are kept as they were, and read again behind
//! it. So nothing is placed in the code that is traced, and nothing that it stores is missed: vector and string instructions,
//! read-modify-writes, stores of the C library. What the kernel does on its behalf is taken from the system call: MADV_REMOVE punches a
//! hole; mappings that come and go are followed.
//!
//! A [`Trace`] is a list of changes in program order: the file's content after the first k of them is what a death leaves between the k-th and
//! the next one.

mod protected;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register};
use libc::{c_int, siginfo_t, ucontext_t};

/// What happened to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Bytes were stored (perhaps those that were there).
    Stored,
    /// A range was given back to the file system: it reads as zeros.
    Punched,
    /// Private memory that was to be watched has changed; the file has not.
    Watched,
}

/// One change.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What it was.
    pub what: What,
    /// Address of the instruction.
    pub ip: u64,
    /// Number of the instruction, from 1.
    pub step: u64,
    /// Offset in the file. Of watched memory: its address.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Where the probe pointed behind it: an offset in the file.
    pub probe: Option<u64>,
    /// Where the old bytes are, followed by the new ones.
    bytes: usize,
}

/// The changes that a call made.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Instructions that were executed.
    pub instructions: u64,
    /// The changes in program order; stores that leave the same bytes are among them.
    pub events: Vec<Event>,
    bytes: Vec<u8>,
}

impl Trace {
    /// The bytes before a store.
    pub fn before(&self, e: &Event) -> &[u8] {
        &self.bytes[e.bytes..e.bytes + self.kept(e)]
    }
    /// The bytes behind it; none for a punched range.
    pub fn behind(&self, e: &Event) -> &[u8] {
        let n = self.kept(e);
        &self.bytes[e.bytes + n..e.bytes + 2 * n]
    }
    fn kept(&self, e: &Event) -> usize {
        if e.what == What::Punched { 0 } else { e.len as usize }
    }
    /// True when both made the same changes to the file, in the same order.
    pub fn is_like(&self, other: &Trace) -> bool {
        protected::same(self, other)
    }
    /// How many stores into the file there were.
    pub fn stores(&self) -> usize {
        self.events.iter().filter(|e| e.what == What::Stored).count()
    }
    /// True when nothing was written into the file, the same bytes neither.
    pub fn wrote_nothing(&self) -> bool {
        self.events.iter().all(|e| e.what == What::Watched)
    }
}

/// A part of the file that is mapped.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
}

/// A memory operand that is written: base + index × scale + displacement.
#[derive(Clone, Copy, Debug)]
struct Operand {
    base: Option<usize>,
    index: Option<usize>,
    scale: u64,
    displacement: u64,
    len: u64,
    /// It needs a register that a system call changes.
    unsteady: bool,
}

/// A decoded instruction, as far as it matters.
#[derive(Clone, Copy, Debug)]
struct Known {
    ip: u64,
    next: u64,
    writes: [Option<Operand>; 2],
    is_syscall: bool,
}

/// A write that the next instruction will make.
#[derive(Clone, Copy, Debug)]
struct Pending {
    what: What,
    ip: u64,
    address: u64,
    at: u64,
    len: u64,
    old: usize,
}

/// Ranges of private memory to be watched, and what to ask behind each change.
#[derive(Debug, Default)]
pub struct Watch {
    /// {address, bytes}: changes here are events too.
    pub ranges: Vec<(u64, u64)>,
    /// Gives an address (0: none) of which each event has the offset in the file, if it is there.
    pub probe: Option<fn() -> u64>,
}

/// Traces calls of the thread that made it.
pub struct Tracer {
    device: u64,
    inode: u64,
    mappings: Vec<Mapping>,
    known: Vec<Known>,
    factory: InstructionInfoFactory,
    pending: Vec<Pending>,
    remap: bool,
    watch: Watch,
    trace: Trace,
}

const KNOWN: usize = 1 << 14;
const TRAP_FLAG: i64 = 0x100;
const MADV_REMOVE: i64 = 9;

/// The tracer that is at work. One at a time in a process.
static CURRENT: AtomicPtr<Tracer> = AtomicPtr::new(ptr::null_mut());

impl Tracer {
    /// For the stores into `file`.
    pub fn new(file: &fs::File) -> io::Result<Tracer> {
        let meta = file.metadata()?;
        let mut tracer = Tracer {
            device: meta.dev(),
            inode: meta.ino(),
            mappings: Vec::new(),
            known: vec![Known { ip: 0, next: 0, writes: [None; 2], is_syscall: false }; KNOWN],
            factory: InstructionInfoFactory::new(),
            pending: Vec::new(),
            remap: false,
            watch: Watch::default(),
            trace: Trace::default(),
        };
        tracer.find_mappings();
        Ok(tracer)
    }

    /// What `call` does to the file. It must not allocate memory where the handler could: the handler does.
    pub fn trace(&mut self, watch: Watch, call: impl FnOnce()) -> Trace {
        self.watch = watch;
        self.trace = Trace { instructions: 0, events: Vec::with_capacity(1 << 12), bytes: Vec::with_capacity(1 << 16) };
        self.find_mappings();
        install_handler();
        let this: *mut Tracer = self;
        let before = CURRENT.swap(this, Ordering::SeqCst);
        assert!(before.is_null(), "one tracer at a time");
        stepped(call);
        CURRENT.store(ptr::null_mut(), Ordering::SeqCst);
        self.settle();
        std::mem::take(&mut self.trace)
    }

    fn find_mappings(&mut self) {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        self.mappings = maps.lines().filter_map(|l| self.mapping(l)).collect();
    }

    /// A line of /proc/self/maps: start-end mode offset major:minor inode path.
    fn mapping(&self, line: &str) -> Option<Mapping> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let offset = fields.nth(1)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode: u64 = fields.next()?.parse().ok()?;
        let hex = |s| u64::from_str_radix(s, 16).ok();
        let device = libc::makedev(hex(major)? as u32, hex(minor)? as u32);
        (inode == self.inode && device == self.device).then_some(Mapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)? })
    }

    /// The offset in the file of what lies at an address, as the mappings were at the last trace.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.mappings.iter().find(|m| (m.start..m.end).contains(&address)).map(|m| m.offset + (address - m.start))
    }

    /// Called in front of each instruction.
    fn step(&mut self, regs: &[i64; 23]) {
        self.settle();
        self.trace.instructions += 1;
        let ip = regs[libc::REG_RIP as usize] as u64;
        let known = self.decode(ip);
        self.foresee(&known, regs, false);
        if known.is_syscall {
            let arg = |r: c_int| regs[r as usize];
            match arg(libc::REG_RAX) {
                libc::SYS_madvise if arg(libc::REG_RDX) == MADV_REMOVE => {
                    if let Some(at) = self.offset_of(arg(libc::REG_RDI) as u64) {
                        let len = arg(libc::REG_RSI) as u64;
                        self.pending.push(Pending { what: What::Punched, ip, address: 0, at, len, old: self.trace.bytes.len() });
                    }
                }
                libc::SYS_mmap | libc::SYS_mremap | libc::SYS_munmap => self.remap = true,
                _ => {}
            }
            // The trap comes behind the instruction that follows a system call.
            let next = self.decode(known.next);
            assert!(!next.is_syscall, "two system calls behind each other at {ip:#x}");
            self.foresee(&next, regs, true);
            self.trace.instructions += 1;
        }
    }

    /// Notes what an instruction is going to write.
    fn foresee(&mut self, known: &Known, regs: &[i64; 23], behind_syscall: bool) {
        for operand in known.writes.into_iter().flatten() {
            assert!(!behind_syscall || !operand.unsteady, "cannot tell what the instruction behind a system call writes: {:#x}", known.ip);
            let value = |r: Option<usize>| r.map_or(0, |r| regs[r] as u64);
            let address =
                value(operand.base).wrapping_add(value(operand.index).wrapping_mul(operand.scale)).wrapping_add(operand.displacement);
            let len = operand.len;
            let (what, at) = match self.offset_of(address) {
                Some(at) => (What::Stored, at),
                None if self.watch.ranges.iter().any(|&(a, n)| address < a + n && a < address + len) => (What::Watched, address),
                None => continue,
            };
            let old = self.trace.bytes.len();
            self.read(address, len);
            self.pending.push(Pending { what, ip: known.ip, address, at, len, old });
        }
    }

    /// Appends what lies at an address to the bytes.
    fn read(&mut self, address: u64, len: u64) {
        // SAFETY: the traced instruction is about to write there, or has just done so: it is mapped.
        let bytes = unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(address as usize), len as usize) };
        self.trace.bytes.extend_from_slice(bytes);
    }

    /// Takes down what the last instruction has written.
    fn settle(&mut self) {
        if self.remap {
            self.remap = false;
            self.find_mappings();
        }
        if self.pending.is_empty() {
            return;
        }
        let probe = self.watch.probe.and_then(|p| self.offset_of(p()));
        let pending = std::mem::take(&mut self.pending);
        for p in &pending {
            let mut bytes = p.old;
            if p.what != What::Punched {
                let end = p.old + p.len as usize;
                if end != self.trace.bytes.len() {
                    // Another operand's bytes lie behind the old ones.
                    bytes = self.trace.bytes.len();
                    self.trace.bytes.extend_from_within(p.old..end);
                }
                self.read(p.address, p.len);
            }
            let e = Event { what: p.what, ip: p.ip, step: self.trace.instructions, at: p.at, len: p.len, probe, bytes };
            self.trace.events.push(e);
        }
        self.pending = pending;
        self.pending.clear();
    }

    fn decode(&mut self, ip: u64) -> Known {
        let slot = (ip ^ ip >> 14) as usize % KNOWN;
        if self.known[slot].ip != ip {
            self.known[slot] = self.decode_anew(ip);
        }
        self.known[slot]
    }

    fn decode_anew(&mut self, ip: u64) -> Known {
        const LONGEST: usize = 15;
        // SAFETY: the processor is about to execute what lies there. The longest instruction may reach past the end of the code's mapping;
        // an executable's code is followed by its other segments.
        let code = unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(ip as usize), LONGEST) };
        let instruction: Instruction = Decoder::with_ip(64, code, ip, DecoderOptions::NONE).decode();
        assert!(!instruction.is_invalid(), "no instruction at {ip:#x}");
        let mut writes = [None; 2];
        let mut n = 0;
        let info = self.factory.info(&instruction);
        for m in info.used_memory() {
            let writing = matches!(m.access(), OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
            // A thread's own stack, and its thread-local storage, are not the file.
            let own = m.base() == Register::RSP || matches!(m.segment(), Register::FS | Register::GS);
            if !writing || own {
                continue;
            }
            let register = |r: Register| match r {
                // Of an operand relative to it, the displacement is the whole address.
                Register::None | Register::RIP => None,
                r => Some(number_of(r).unwrap_or_else(|| panic!("an address register that is not known: {r:?} at {ip:#x}"))),
            };
            let (base, index) = (register(m.base()), register(m.index()));
            let changed = [libc::REG_RAX, libc::REG_RCX, libc::REG_R11].map(|r| r as usize);
            writes[n] = Some(Operand {
                base,
                index,
                scale: u64::from(m.scale()),
                displacement: m.displacement(),
                // Of a repeated string instruction the operand has no size; each round is a step of its own.
                len: match m.memory_size().size() {
                    0 => instruction.memory_size().size(),
                    n => n,
                } as u64,
                unsteady: [base, index].into_iter().flatten().any(|r| changed.contains(&r)),
            });
            n += 1;
        }
        Known { ip, next: instruction.next_ip(), writes, is_syscall: instruction.code() == iced_x86::Code::Syscall }
    }
}

/// A register's place in the signal frame.
fn number_of(r: Register) -> Option<usize> {
    let n = match r {
        Register::RAX => libc::REG_RAX,
        Register::RCX => libc::REG_RCX,
        Register::RDX => libc::REG_RDX,
        Register::RBX => libc::REG_RBX,
        Register::RSP => libc::REG_RSP,
        Register::RBP => libc::REG_RBP,
        Register::RSI => libc::REG_RSI,
        Register::RDI => libc::REG_RDI,
        Register::R8 => libc::REG_R8,
        Register::R9 => libc::REG_R9,
        Register::R10 => libc::REG_R10,
        Register::R11 => libc::REG_R11,
        Register::R12 => libc::REG_R12,
        Register::R13 => libc::REG_R13,
        Register::R14 => libc::REG_R14,
        Register::R15 => libc::REG_R15,
        _ => return None,
    };
    Some(n as usize)
}

fn install_handler() {
    // SAFETY: all zeros is a valid sigaction; the handler keeps to what is said there.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as extern "C" fn(c_int, *mut siginfo_t, *mut ucontext_t) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut());
    }
}

/// The signal comes behind each instruction of [`stepped`] and of what it calls; that is never in the allocator, so the handler may be.
extern "C" fn on_trap(_: c_int, _: *mut siginfo_t, context: *mut ucontext_t) {
    let tracer = CURRENT.load(Ordering::Relaxed);
    // SAFETY: the kernel passes the context of the interrupted code.
    let regs = unsafe { &mut (*context).uc_mcontext.gregs };
    if tracer.is_null() {
        regs[libc::REG_EFL as usize] &= !TRAP_FLAG;
        return;
    }
    // SAFETY: `Tracer::trace` has lent it for as long as `CURRENT` has it, and this thread stands in front of an instruction of the call.
    unsafe { (*tracer).step(regs) };
}

/// Runs `call` with the trap flag set.
#[inline(never)]
fn stepped(call: impl FnOnce()) {
    // SAFETY: changes a flag that stops the thread behind each instruction; the handler is there.
    unsafe { std::arch::asm!("pushfq", "or dword ptr [rsp], 0x100", "popfq") };
    call();
    // SAFETY: takes it off again.
    unsafe { std::arch::asm!("pushfq", "and dword ptr [rsp], 0xfffffeff", "popfq") };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64};

    use super::*;
    use crate::image::{Image, Mapped};

    /// Stores of many kinds. All leave other bytes, but for the second exchange, which fails.
    fn call(m: &Mapped, source: &[u8; 100]) {
        let word = |at| {
            // SAFETY: an aligned word of the mapping, which lives over the call.
            unsafe { &*m.pointer(at).cast::<AtomicU64>() }
        };
        word(0).store(7, Ordering::Relaxed);
        word(8).store(u64::MAX, Ordering::SeqCst);
        let _ = word(0).compare_exchange(7, 9, Ordering::AcqRel, Ordering::Relaxed);
        let _ = word(0).compare_exchange(7, 11, Ordering::AcqRel, Ordering::Relaxed);
        word(16).fetch_add(3, Ordering::AcqRel);
        word(16).fetch_or(0x100, Ordering::AcqRel);
        // SAFETY: as above.
        unsafe { &*m.pointer(24).cast::<AtomicU32>() }.swap(5, Ordering::AcqRel);
        // SAFETY: within the first page of the mapping. A string instruction, and the C library's vectors.
        unsafe {
            std::arch::asm!("rep stosb", inout("rdi") m.pointer(40) => _, inout("rcx") 3u64 => _, in("al") 0x55u8);
            ptr::copy_nonoverlapping(source.as_ptr(), m.pointer(64).cast(), std::hint::black_box(source.len()));
        }
    }

    #[test]
    fn both_ways_see_every_store() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let path = dir.path().join("file");
        fs::write(&path, [0u8; 2 * crate::image::PAGE]).expect("own file");
        let (m, other) = (Mapped::open(&path).expect("own file"), Mapped::open(&path).expect("own file"));
        let base = Image::of(&other);
        let mut tracer = Tracer::new(m.file()).expect("own file");
        let source = std::array::from_fn(|i| i as u8 + 1);
        let stepped = tracer.trace(Watch::default(), || call(&m, &source));
        let mut image = base.clone();
        stepped.events.iter().for_each(|e| image.write(e.at, stepped.behind(e)));
        assert_eq!(image.differs(&other), None);
        assert!(stepped.instructions > 20 && stepped.stores() > 10);
        base.put_back(&other);
        let by_protection = tracer.trace_stores(&other, || call(&m, &source)).expect("own mappings");
        assert!(by_protection.is_like(&stepped));
        assert_eq!(image.differs(&other), None);
        let reads = tracer.trace_stores(&other, || assert_eq!(std::hint::black_box(m.u64(0)), 9)).expect("own mappings");
        assert!(reads.wrote_nothing());
    }
}
