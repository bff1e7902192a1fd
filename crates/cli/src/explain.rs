//! Errors of the engine, turned into what is wrong and what to do.

use std::path::Path;

use manyway_sem::{Errno, Fairness, Limits, OpenError};

use crate::exit::Failure;

/// A namespace in `dir` could not be opened.
pub fn open_error(dir: &Path, error: &OpenError) -> Failure {
    let place = dir.display();
    match *error {
        OpenError::Os(_, Errno::ENOENT) => Failure::new(format!("there is no namespace in {place}"))
            .advise("The first `manyway run` makes it; choose another with --dir or --ns."),
        OpenError::Os(call, Errno::EACCES | Errno::EPERM) => Failure::new(format!("no access to the namespace in {place} ({call})"))
            .advise("A namespace is its owner's alone: become that user, or choose another with --dir or --ns."),
        OpenError::Os(call, Errno::ENOSPC | Errno::ENOMEM) => Failure::new(format!("no room for the namespace in {place} ({call})"))
            .advise(format!("Free space on that file system (`df {place}`), or choose a directory on another with --dir.")),
        OpenError::Os(call, Errno::EROFS) => Failure::new(format!("{place} is on a read-only file system ({call})"))
            .advise("Choose a directory on another file system with --dir; /dev/shm is a good place."),
        OpenError::Os(call, error) => Failure::new(format!("cannot open the namespace in {place}: {call}: {error}"))
            .advise("Choose a directory with --dir on a file system that can map shared memory; /dev/shm is a good place."),
        OpenError::Untrusted(why) => Failure::new(format!("{place} cannot be trusted: {why}"))
            .advise("A namespace must be yours alone: directory mode 0700, arena mode 0600, both owned by you."),
        OpenError::NotAnArena(why) => Failure::new(format!("{place}/arena-v1 is not a Manyway arena: {why}"))
            .advise("If no program uses it, remove the file; otherwise choose another namespace with --dir or --ns."),
        OpenError::OtherLayout(layout) => Failure::new(format!("the namespace in {place} has layout {layout}, which this version does not know"))
            .advise("Let the programs that use it end and remove the directory, or choose another namespace with --dir or --ns."),
        OpenError::OtherPidNamespace => Failure::new(format!("the namespace in {place} belongs to another PID namespace (another container)"))
            .advise("Process numbers would mean other processes here: choose another namespace with --dir or --ns."),
        OpenError::LimitsDiffer(has) => Failure::new(format!("the namespace in {place} exists and has the limits {}", limits(has)))
            .advise("Leave --limits away to use it as it is, or choose another namespace with --ns."),
        OpenError::FairnessDiffers(has) => Failure::new(format!("the namespace in {place} exists and its fairness is {}", fairness(has)))
            .advise("Leave --fairness away to use it as it is, or choose another namespace with --ns."),
        OpenError::BadLimits(why) => Failure::new(format!("these limits are not possible: {why}"))
            .advise("The order is MSL,MNS,OPM,MNI, as in /proc/sys/kernel/sem: 32000,1024000000,500,32000."),
    }
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
        _ => Failure::new(format!("set {id}: {error}")),
    }
}

fn limits(Limits { msl, mns, opm, mni }: Limits) -> String {
    format!("{msl},{mns},{opm},{mni}")
}

fn fairness(fairness: Fairness) -> &'static str {
    match fairness {
        Fairness::Strict => "strict",
        Fairness::Barging => "barging",
    }
}
