//! Errors of the engine, turned into what is wrong and what to do.

use std::path::Path;

use manyway_sem::{Errno, Fairness, LAYOUT, Limits, OpenError, Share};

use crate::exit::Failure;
use crate::layouts;
use crate::people::{self, Names};

/// A namespace in `dir` could not be opened.
pub fn open_error(dir: &Path, error: &OpenError) -> Failure {
    let place = dir.display();
    if let (OpenError::Os(_, Errno::ENOENT), Some(other)) = (error, layouts::beside(dir).first()) {
        return Failure::new(format!("there is no namespace of this version in {place}: {other}"))
            .advise("Use the version that made it, or `manyway run`, which makes one of this version beside it.");
    }
    let (what, advice) = match *error {
        OpenError::Os(_, Errno::ENOENT) => {
            (format!("there is no namespace in {place}"), "The first `manyway run` makes it; choose another with --dir or --ns.")
        }
        OpenError::Os(call, Errno::EACCES) => (
            format!("no access to the namespace in {place} ({call})"),
            "It is its owner's alone, or shared with others than you: become that user, or choose another with --dir or --ns.",
        ),
        OpenError::Os(call, Errno::EPERM) => (
            format!("the system does not permit it in {place} ({call})"),
            "Is the directory or file immutable (lsattr)? To share with a group its owner must be a member of it.",
        ),
        OpenError::Os(call, Errno::ELOOP | Errno::ENOTDIR) => (
            format!("{place} is a symbolic link or no directory, or its arena is a link ({call})"),
            "Links are not followed: name the directory itself with --dir, or choose another.",
        ),
        OpenError::Os(call, Errno::ENOSPC | Errno::ENOMEM | Errno::EDQUOT) => (
            format!("no room for the namespace in {place} ({call})"),
            "Free space on that file system, or choose a directory on another one with --dir.",
        ),
        OpenError::Os(call, Errno::EROFS) => (
            format!("{place} is on a read-only file system ({call})"),
            "Choose a directory on another file system with --dir; /dev/shm is a good place.",
        ),
        OpenError::Os(call, error) => (
            format!("cannot open the namespace in {place}: {call}: {error}"),
            "Choose a directory with --dir on a file system that can map shared memory; /dev/shm is a good place.",
        ),
        OpenError::Foreign { what, owner } => (
            format!("{place} cannot be trusted: the {what} belongs to user {}", Names::new().user(owner)),
            "If that user shares the namespace with you, say so: --ns OWNER/NAME, or --share as it is shared.",
        ),
        OpenError::Untrusted(why) => (
            format!("{place} cannot be trusted: {why}"),
            "Directory and arena must have one owner, and be writable by nobody who is not meant to: 0700 and 0600, or as --share makes them.",
        ),
        OpenError::NotAnArena(why) => (
            format!("{place}/arena-v{LAYOUT} is not a Manyway arena: {why}"),
            "If no program uses it, remove the file; otherwise choose another namespace with --dir or --ns.",
        ),
        OpenError::OtherLayout(layout) => (
            format!("the namespace in {place} has layout {layout}, which this version does not know"),
            "Let the programs that use it end and remove the directory, or choose another namespace with --dir or --ns.",
        ),
        OpenError::OtherPidNamespace => (
            format!("the namespace in {place} belongs to another PID namespace (another container)"),
            "Process numbers would mean other processes here: choose another namespace with --dir or --ns.",
        ),
        OpenError::OtherUserNamespace => (
            format!("the namespace in {place} belongs to another user namespace (another container)"),
            "User numbers would mean other users here: choose another namespace with --dir or --ns.",
        ),
        OpenError::SharingDiffers(has) => (
            format!("the namespace in {place} exists and is shared with {}", share(has)),
            "Leave --share away to use it as it is, or change it with `manyway ns set --share`.",
        ),
        OpenError::LimitsDiffer(has) => (
            format!("the namespace in {place} exists and has the limits {}", limits(has)),
            "Leave --limits away to use it as it is, or choose another namespace with --ns.",
        ),
        OpenError::FairnessDiffers(has) => (
            format!("the namespace in {place} exists and its fairness is {}", fairness(has)),
            "Leave --fairness away to use it as it is, or choose another namespace with --ns.",
        ),
        OpenError::BadLimits(why) => (
            format!("these limits are not possible: {why}"),
            "The order is MSL,MNS,OPM,MNI, as in /proc/sys/kernel/sem: 32000,1024000000,500,32000.",
        ),
    };
    Failure::new(what).advise(advice)
}

/// An operation on set `id` failed.
pub fn set_error(id: i32, error: Errno) -> Failure {
    match error {
        Errno::EINVAL | Errno::EIDRM => {
            Failure::new(format!("there is no set with id {id}")).advise("`manyway ls` lists the ids of this namespace.")
        }
        Errno::EACCES => Failure::new(format!("set {id}: its mode does not let you read it")).advise("Become its owner or root."),
        Errno::EPERM => Failure::new(format!("set {id}: only its owner, its creator and root may remove it")),
        Errno::ENOMEM | Errno::ENOSPC => {
            Failure::new(format!("set {id}: no memory left ({error})")).advise("Free space on the namespace's file system.")
        }
        Errno::EIO => Failure::new(format!("set {id} is damaged"))
            .advise("Somebody has written the namespace's memory: end its programs and remove it."),
        _ => Failure::new(format!("set {id}: {error}")),
    }
}

/// Limits as `--limits` takes them.
pub fn limits(Limits { msl, mns, opm, mni }: Limits) -> String {
    format!("{msl},{mns},{opm},{mni}")
}

/// Fairness as `--fairness` takes it.
pub fn fairness(fairness: Fairness) -> &'static str {
    match fairness {
        Fairness::Strict => "strict",
        Fairness::Barging => "barging",
    }
}

/// With whom a namespace is shared.
pub fn share(share: Share) -> String {
    match share {
        Share::Nobody => "nobody".into(),
        Share::Group(gid) => format!("group {}", people::group_name(gid)),
        Share::All => "all users".into(),
    }
}
