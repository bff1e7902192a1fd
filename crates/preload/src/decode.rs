//! What the bytes that a program hands over or gets back mean: `semctl`'s commands and structures. Nothing here touches the
//! program's memory or the engine.
//!
//! The structures are those of the C libraries on 64-bit machines, which are the kernel's.

use manyway_sem::abi::{self, SemInfo, SetStat};

/// A command of semctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `IPC_RMID`.
    Remove,
    /// `IPC_SET`, with a [`SemidDs`] to read.
    SetOwner,
    /// `IPC_STAT`, with a [`SemidDs`] to fill.
    Stat,
    /// `SEM_STAT` and `SEM_STAT_ANY`, the same by index.
    StatIndex {
        /// No permission is needed.
        any: bool,
    },
    /// `IPC_INFO` and `SEM_INFO`, with a [`Seminfo`] to fill.
    Info {
        /// What is in use, instead of two of the limits.
        used: bool,
    },
    /// `GETVAL`.
    Value,
    /// `GETPID`.
    Pid,
    /// `GETNCNT`.
    AlterSleepers,
    /// `GETZCNT`.
    ZeroSleepers,
    /// `SETVAL`, with a value.
    SetValue,
    /// `GETALL`, with an array to fill.
    Values,
    /// `SETALL`, with an array to read.
    SetValues,
}

impl Command {
    /// The command that a program means by this number. `IPC_64` (0x100) is not taken off: on 64-bit machines the kernel refuses it.
    pub(crate) fn from_number(cmd: i32) -> Option<Command> {
        Some(match cmd {
            abi::IPC_RMID => Command::Remove,
            abi::IPC_SET => Command::SetOwner,
            abi::IPC_STAT => Command::Stat,
            abi::SEM_STAT => Command::StatIndex { any: false },
            abi::SEM_STAT_ANY => Command::StatIndex { any: true },
            abi::IPC_INFO => Command::Info { used: false },
            abi::SEM_INFO => Command::Info { used: true },
            abi::GETVAL => Command::Value,
            abi::GETPID => Command::Pid,
            abi::GETNCNT => Command::AlterSleepers,
            abi::GETZCNT => Command::ZeroSleepers,
            abi::SETVAL => Command::SetValue,
            abi::GETALL => Command::Values,
            abi::SETALL => Command::SetValues,
            _ => return None,
        })
    }
}

/// `struct ipc_perm`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IpcPerm {
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    pub mode: u32,
    pub seq: u16,
    pad: [u16; 3],
    unused: [u64; 2],
}

/// `struct semid_ds`. x86-64 has room after each time for its upper half, a relic of 32 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SemidDs {
    pub perm: IpcPerm,
    pub otime: i64,
    #[cfg(target_arch = "x86_64")]
    unused1: u64,
    pub ctime: i64,
    #[cfg(target_arch = "x86_64")]
    unused2: u64,
    pub nsems: u64,
    unused: [u64; 2],
}

const _: () = assert!(size_of::<IpcPerm>() == 48);
#[cfg(target_arch = "x86_64")]
const _: () = assert!(size_of::<SemidDs>() == 104);
#[cfg(target_arch = "aarch64")]
const _: () = assert!(size_of::<SemidDs>() == 88);

impl From<SetStat> for SemidDs {
    fn from(s: SetStat) -> SemidDs {
        SemidDs {
            perm: IpcPerm {
                key: s.key,
                uid: s.uid,
                gid: s.gid,
                cuid: s.cuid,
                cgid: s.cgid,
                mode: s.mode,
                seq: s.seq as u16,
                ..IpcPerm::default()
            },
            otime: s.otime,
            ctime: s.ctime,
            nsems: s.nsems.into(),
            ..SemidDs::default()
        }
    }
}

/// `struct seminfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seminfo {
    pub semmap: i32,
    pub semmni: i32,
    pub semmns: i32,
    pub semmnu: i32,
    pub semmsl: i32,
    pub semopm: i32,
    pub semume: i32,
    pub semusz: i32,
    pub semvmx: i32,
    pub semaem: i32,
}

/// Linux has no such limits (undo structures, entries of the map, undo entries of a process): it reports its own defaults for the
/// number of semaphores and of operations, whatever kernel.sem says.
const SEMMNS: i32 = 32_000 * 32_000;
const SEMOPM: i32 = 500;
/// Size of an undo structure, once.
const SEMUSZ: i32 = 20;

impl Seminfo {
    /// What `IPC_INFO`, or with `used` `SEM_INFO`, tells.
    pub(crate) fn new(i: SemInfo, used: bool) -> Seminfo {
        Seminfo {
            semmap: SEMMNS,
            semmni: i.mni,
            semmns: i.mns,
            semmnu: SEMMNS,
            semmsl: i.msl,
            semopm: i.opm,
            semume: SEMOPM,
            semusz: if used { i.sets } else { SEMUSZ },
            semvmx: abi::SEMVMX,
            semaem: if used { i.sems } else { abi::SEMAEM },
        }
    }
}
