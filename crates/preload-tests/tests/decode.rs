//! The decoder's tables and structures, against the numbers of the C library's headers.

use std::mem::offset_of;

use manyway_sem::abi::{SemInfo, SetStat};

#[allow(dead_code)]
#[path = "../../preload/src/decode.rs"]
mod decode;

use decode::{Command, IpcPerm, SemidDs, Seminfo};

#[test]
fn commands_have_the_numbers_of_the_headers() {
    let all = [
        (0, Command::Remove),
        (1, Command::SetOwner),
        (2, Command::Stat),
        (3, Command::Info { used: false }),
        (11, Command::Pid),
        (12, Command::Value),
        (13, Command::Values),
        (14, Command::AlterSleepers),
        (15, Command::ZeroSleepers),
        (16, Command::SetValue),
        (17, Command::SetValues),
        (18, Command::StatIndex { any: false }),
        (19, Command::Info { used: true }),
        (20, Command::StatIndex { any: true }),
    ];
    for (number, command) in all {
        assert_eq!(Command::from_number(number), Some(command));
    }
    let unknown = (-1000..1000).filter(|n| all.iter().all(|(m, _)| m != n));
    for number in unknown.chain([i32::MIN, i32::MAX, 0x100 | 2]) {
        assert_eq!(Command::from_number(number), None, "{number}");
    }
}

#[test]
fn semid_ds_lies_as_the_kernel_has_it() {
    let perm = [
        offset_of!(IpcPerm, key),
        offset_of!(IpcPerm, uid),
        offset_of!(IpcPerm, gid),
        offset_of!(IpcPerm, cuid),
        offset_of!(IpcPerm, cgid),
        offset_of!(IpcPerm, mode),
        offset_of!(IpcPerm, seq),
    ];
    assert_eq!(perm, [0, 4, 8, 12, 16, 20, 24]);
    let set = [offset_of!(SemidDs, perm), offset_of!(SemidDs, otime), offset_of!(SemidDs, ctime), offset_of!(SemidDs, nsems)];
    assert_eq!(set, if cfg!(target_arch = "x86_64") { [0, 48, 64, 80] } else { [0, 48, 56, 64] });
}

#[test]
fn semid_ds_holds_what_the_engine_says() {
    let stat = SetStat {
        id: 1,
        key: -2,
        uid: 3,
        gid: 4,
        cuid: 5,
        cgid: u32::MAX,
        mode: 0o751,
        seq: 0xffff,
        nsems: 32_000,
        otime: i64::MAX,
        ctime: 6,
    };
    let s = SemidDs::from(stat);
    assert_eq!((s.perm.key, s.perm.uid, s.perm.gid, s.perm.cuid, s.perm.cgid), (-2, 3, 4, 5, u32::MAX));
    assert_eq!((s.perm.mode, s.perm.seq, s.nsems, s.otime, s.ctime), (0o751, 0xffff, 32_000, i64::MAX, 6));
}

#[test]
fn seminfo_tells_limits_or_what_is_in_use() {
    let info = SemInfo { msl: 1, mns: 2, opm: 3, mni: 4, sets: 5, sems: 6, highest: 7 };
    let limits = Seminfo::new(info, false);
    assert_eq!(
        (limits.semmni, limits.semmns, limits.semmsl, limits.semopm, limits.semusz, limits.semvmx, limits.semaem),
        (4, 2, 1, 3, 20, 32767, 32767)
    );
    assert_eq!((limits.semmap, limits.semmnu, limits.semume), (1_024_000_000, 1_024_000_000, 500));
    let used = Seminfo::new(info, true);
    assert_eq!((used.semusz, used.semaem), (5, 6));
    assert_eq!(Seminfo { semusz: 20, semaem: 32767, ..used }, limits);
}
