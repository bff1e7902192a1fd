//! A process that is executed instruction by instruction between two of its own stops.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory};
use libc::user_regs_struct;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{Steps, Write};
use crate::Error;

/// Thread-local storage reaches so far to both sides of the thread's pointer, within its mapping.
const THREAD_LOCAL: u64 = 4096;

/// A process that this thread traces.
pub struct Tracee(Pid);

/// A decoded instruction, as far as it matters.
struct Known {
    writes: Vec<UsedMemory>,
    /// Bytes of an operand of which the decoder does not tell the size: a round of a repeated string instruction.
    unsized_len: u64,
    locks: bool,
}

/// A write that the next instruction makes.
struct Pending {
    word: u64,
    /// What is there, when the instruction locks.
    before: Option<u64>,
}

impl Tracee {
    /// Begins to trace a process, which runs on.
    pub fn attach(pid: u32) -> Result<Tracee, Error> {
        let pid = Pid::from_raw(pid as i32);
        let attached = ptrace::attach(pid).and_then(|()| waitpid(pid, None)).and_then(|_| ptrace::cont(pid, None));
        attached.map(|()| Tracee(pid)).map_err(failed("ptrace(PTRACE_ATTACH)"))
    }

    /// Waits until it stops itself, executes it instruction by instruction until it stops itself again, and lets it go.
    pub fn between_stops(self) -> Result<Steps, Error> {
        self.await_stop()?;
        let own = self.own_memory()?;
        let mut steps = Steps::default();
        let mut known = HashMap::new();
        let mut factory = InstructionInfoFactory::new();
        loop {
            let regs = ptrace::getregs(self.0).map_err(failed("ptrace(PTRACE_GETREGS)"))?;
            let instruction = match known.entry(regs.rip) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => entry.insert(self.decode(&mut factory, regs.rip)?),
            };
            let pending = self.foresee(instruction, &regs, &own)?;
            ptrace::step(self.0, None).map_err(failed("ptrace(PTRACE_SINGLESTEP)"))?;
            let status = waitpid(self.0, None).map_err(failed("waitpid"))?;
            for Pending { word, before } in pending {
                let locked = before.map(|before| self.read(word).map(|behind| (before, behind))).transpose()?;
                steps.writes.push(Write { word, locked });
            }
            match status {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => steps.instructions += 1,
                WaitStatus::Stopped(_, Signal::SIGSTOP) => break,
                other => return Err(unexpected(other)),
            }
        }
        ptrace::detach(self.0, None).map_err(failed("ptrace(PTRACE_DETACH)"))?;
        Ok(steps)
    }

    fn await_stop(&self) -> Result<(), Error> {
        match waitpid(self.0, None).map_err(failed("waitpid"))? {
            WaitStatus::Stopped(_, Signal::SIGSTOP) => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// The stack and the thread-local storage of the stopped thread.
    fn own_memory(&self) -> Result<[Range<u64>; 2], Error> {
        let regs = ptrace::getregs(self.0).map_err(failed("ptrace(PTRACE_GETREGS)"))?;
        let path = format!("/proc/{}/maps", self.0);
        let maps = fs::read_to_string(&path).map_err(Error::io(path))?;
        let mapping = |address: u64| {
            let parsed = maps.lines().filter_map(|line| {
                let (start, end) = line.split_once(' ')?.0.split_once('-')?;
                let hex = |text| u64::from_str_radix(text, 16).ok();
                Some(hex(start)?..hex(end)?)
            });
            parsed.into_iter().find(|range| range.contains(&address)).unwrap_or(address..address)
        };
        let thread = mapping(regs.fs_base);
        let near = regs.fs_base.saturating_sub(THREAD_LOCAL).max(thread.start)..(regs.fs_base + THREAD_LOCAL).min(thread.end);
        Ok([mapping(regs.rsp), near])
    }

    /// The words that an instruction is going to write outside of what is the thread's own.
    fn foresee(&self, known: &Known, regs: &user_regs_struct, own: &[Range<u64>]) -> Result<Vec<Pending>, Error> {
        let mut pending = Vec::new();
        for memory in &known.writes {
            let address = memory.virtual_address(0, |register, _, _| value(regs, register));
            let Some(address) = address else {
                return Err(Error::io(format!("cannot tell what is written at {:#x}", regs.rip))(std::io::ErrorKind::Unsupported.into()));
            };
            if own.iter().any(|range| range.contains(&address)) {
                continue;
            }
            let len = match memory.memory_size().size() as u64 {
                0 => known.unsized_len,
                len => len,
            };
            for word in (address & !7..address + len.max(1)).step_by(8) {
                let before = if known.locks { Some(self.read(word)?) } else { None };
                pending.push(Pending { word, before });
            }
        }
        Ok(pending)
    }

    fn decode(&self, factory: &mut InstructionInfoFactory, ip: u64) -> Result<Known, Error> {
        // The longest instruction has fifteen bytes, and may be the last of its mapping.
        let mut code = Vec::with_capacity(16);
        for at in [ip, ip + 8] {
            match self.read(at) {
                Ok(word) => code.extend_from_slice(&word.to_le_bytes()),
                Err(error) if code.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        let instruction = Decoder::with_ip(64, &code, ip, DecoderOptions::NONE).decode();
        let writing = |memory: &&UsedMemory| {
            matches!(memory.access(), OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
        };
        let writes: Vec<UsedMemory> = factory.info(&instruction).used_memory().iter().filter(writing).copied().collect();
        // An exchange with memory locks without being told to.
        let exchange = instruction.mnemonic() == Mnemonic::Xchg && instruction.op_kinds().any(|kind| kind == OpKind::Memory);
        let locks = !writes.is_empty() && (instruction.has_lock_prefix() || exchange);
        Ok(Known { writes, unsized_len: instruction.memory_size().size() as u64, locks })
    }

    fn read(&self, address: u64) -> Result<u64, Error> {
        ptrace::read(self.0, address as ptrace::AddressType).map(|word| word as u64).map_err(failed("ptrace(PTRACE_PEEKDATA)"))
    }
}

fn failed(what: &'static str) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::io(what)(errno.into())
}

fn unexpected(status: WaitStatus) -> Error {
    Error::io(format!("the worker should have stopped itself: {status:?}"))(std::io::ErrorKind::Other.into())
}

/// What a register holds, as an address is made of it.
fn value(regs: &user_regs_struct, register: Register) -> Option<u64> {
    Some(match register {
        Register::RAX => regs.rax,
        Register::RBX => regs.rbx,
        Register::RCX => regs.rcx,
        Register::RDX => regs.rdx,
        Register::RSI => regs.rsi,
        Register::RDI => regs.rdi,
        Register::RSP => regs.rsp,
        Register::RBP => regs.rbp,
        Register::R8 => regs.r8,
        Register::R9 => regs.r9,
        Register::R10 => regs.r10,
        Register::R11 => regs.r11,
        Register::R12 => regs.r12,
        Register::R13 => regs.r13,
        Register::R14 => regs.r14,
        Register::R15 => regs.r15,
        Register::FS => regs.fs_base,
        Register::GS => regs.gs_base,
        // The displacement of an operand relative to it is the whole address.
        Register::RIP => 0,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    })
}
