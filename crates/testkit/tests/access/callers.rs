//! Who calls: users, groups, capabilities, user namespaces.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::sys::{self, Via};

/// Users and groups that no passwd file names: the kernel knows numbers only.
pub const OWNER: u32 = 71001;
pub const CREATOR: u32 = 71002;
pub const STRANGER: u32 = 71003;
pub const MEMBER: u32 = 71004;
/// The set's group, its creator's group, and one that has nothing to do with it.
pub const GROUP: u32 = 72001;
pub const CREATORS: u32 = 72002;
pub const OTHER: u32 = 72003;

pub const IPC_OWNER: u32 = 15;
pub const SYS_ADMIN: u32 = 21;
pub const DAC_OVERRIDE: u32 = 1;

/// A user namespace of the caller's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Below {
    /// In which it has this number.
    As(u32),
    /// In which it has no number.
    Nobody,
    /// One in another, root in both.
    Twice,
}

/// One who calls. Made by changing what root is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Caller {
    pub name: String,
    /// Real, effective and saved.
    pub uids: [u32; 3],
    pub gids: [u32; 3],
    pub groups: Vec<u32>,
    pub fsuid: Option<u32>,
    pub fsgid: Option<u32>,
    /// Capabilities that an ordinary user has.
    pub with: Option<u32>,
    /// Capabilities that root has not.
    pub without: Vec<u32>,
    pub below: Option<Below>,
}

impl Caller {
    pub fn new(name: &str, uid: u32, gid: u32) -> Caller {
        Caller {
            name: name.into(),
            uids: [uid; 3],
            gids: [gid; 3],
            groups: vec![],
            fsuid: None,
            fsgid: None,
            with: None,
            without: vec![],
            below: None,
        }
    }
    fn groups(self, groups: &[u32]) -> Caller {
        Caller { groups: groups.into(), ..self }
    }
    fn below(self, below: Below) -> Caller {
        Caller { below: Some(below), ..self }
    }

    /// True when execve leaves the caller as it is, and it may open root's namespace: not out of a user namespace of its own.
    pub fn survives_exec(&self) -> bool {
        let differs = |ids: [u32; 3]| ids != [ids[0]; 3];
        // Saved ids, and those of the file system, become the effective ones; a privileged loader preloads nothing.
        self.fsuid.is_none() && self.fsgid.is_none() && !differs(self.uids) && !differs(self.gids) && self.below.is_none()
    }

    /// Becomes this one. `will_exec`: an execve follows, which is to find the same.
    pub fn become_it(&self, via: Via, will_exec: bool) -> io::Result<()> {
        let root = self.uids[1] == 0;
        if root && will_exec {
            self.without.iter().try_for_each(|&c| sys::drop_from_bounding(c))?;
        }
        sys::set_groups(via, &self.groups)?;
        sys::set_gids(via, self.gids)?;
        if self.with.is_some() {
            sys::keep_capabilities()?;
        }
        let all = sys::capabilities();
        sys::set_uids(via, self.uids)?;
        // With its numbers the caller may be all it likes to the file system, while it has the right to.
        if let Some(gid) = self.fsgid {
            sys::set_fsgid(via, gid);
        }
        if let Some(uid) = self.fsuid {
            sys::set_fsuid(via, uid);
        }
        if let Some(capability) = self.with {
            sys::set_capabilities(via, 1 << capability)?;
            sys::raise_ambient(capability)?;
        } else if root && !self.without.is_empty() {
            let without = self.without.iter().fold(0, |mask, c| mask | 1u64 << c);
            sys::set_capabilities(via, all & !without)?;
        }
        match self.below {
            None => Ok(()),
            Some(below) => enter_below(below, self.uids[1], self.gids[1]),
        }
    }
}

/// Enters a user namespace of its own.
pub fn enter_below(below: Below, uid: u32, gid: u32) -> io::Result<()> {
    if below == Below::Twice {
        enter_below(Below::As(0), uid, gid)?;
        return enter_below(Below::As(0), 0, 0);
    }
    sys::unshare(libc::CLONE_NEWUSER)?;
    if let Below::As(number) = below {
        sys::own_proc_files()?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{number} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{number} {gid} 1"))?;
    }
    Ok(())
}

/// All who are tried.
pub fn all() -> Vec<Caller> {
    let of = Caller::new;
    let many: Vec<u32> = (73000..73600).chain([GROUP]).collect();
    vec![
        of("owner", OWNER, OTHER),
        of("creator", CREATOR, OTHER),
        of("member of the group", MEMBER, GROUP),
        of("member of the creator's group", MEMBER, CREATORS),
        of("member by a supplementary group", MEMBER, OTHER).groups(&[73001, GROUP]),
        of("member by one of 601", MEMBER, OTHER).groups(&many),
        of("member of the creator's by a supplementary one", MEMBER, OTHER).groups(&[CREATORS]),
        of("stranger", STRANGER, OTHER),
        of("root", 0, 0),
        Caller { without: vec![IPC_OWNER], ..of("root without CAP_IPC_OWNER", 0, 0) },
        Caller { without: vec![SYS_ADMIN], ..of("root without CAP_SYS_ADMIN", 0, 0) },
        Caller { without: vec![SYS_ADMIN, IPC_OWNER], ..of("root without both", 0, 0) },
        Caller { with: Some(IPC_OWNER), ..of("stranger with CAP_IPC_OWNER", STRANGER, OTHER) },
        Caller { with: Some(SYS_ADMIN), ..of("stranger with CAP_SYS_ADMIN", STRANGER, OTHER) },
        Caller { uids: [STRANGER, OWNER, STRANGER], ..of("owner by the effective id", OWNER, OTHER) },
        Caller { uids: [OWNER, STRANGER, OWNER], ..of("owner by real and saved id only", STRANGER, OTHER) },
        Caller { gids: [OTHER, GROUP, OTHER], ..of("member by the effective group", MEMBER, OTHER) },
        Caller { gids: [GROUP, OTHER, GROUP], ..of("member by real and saved group only", MEMBER, OTHER) },
        // The effective group of one who may set it to the group: kept in the saved one.
        Caller { gids: [OTHER, OTHER, GROUP], fsgid: Some(GROUP), ..of("member by the file system's group", MEMBER, OTHER) },
        Caller { gids: [OTHER, GROUP, OTHER], fsgid: Some(OTHER), ..of("member but for the file system's group", MEMBER, OTHER) },
        Caller { uids: [STRANGER, STRANGER, OWNER], fsuid: Some(OWNER), ..of("owner by the file system's id only", STRANGER, OTHER) },
        of("owner as root of a user namespace", OWNER, OTHER).below(Below::As(0)),
        of("owner in a user namespace", OWNER, OTHER).below(Below::As(OWNER)),
        of("member as root of a user namespace", MEMBER, GROUP).below(Below::As(0)),
        of("stranger as root of a user namespace", STRANGER, OTHER).below(Below::As(0)),
        of("stranger with the owner's number in a user namespace", STRANGER, OTHER).below(Below::As(OWNER)),
        of("owner without a number in a user namespace", OWNER, OTHER).below(Below::Nobody),
        of("stranger without a number in a user namespace", STRANGER, OTHER).below(Below::Nobody),
    ]
}
