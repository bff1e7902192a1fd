//! Sharing between real users: who gets in, what is said to those who do not, and what may be done inside. Needs root, which becomes others.

#[allow(dead_code)]
mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use common::cast::{Cast, ROOT, can};
use common::{eventually, stderr, stdout};

fn modes(dir: &Path) -> (u32, u32, u32, u32) {
    let of = |path: &Path| path.metadata().unwrap();
    let (d, a) = (of(dir), of(&dir.join("arena-v1")));
    (d.mode() & 0o7777, d.gid(), a.mode() & 0o7777, a.gid())
}

#[test]
fn a_group_shares_a_namespace() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let (owner, member, stranger) = (cast.owner(), cast.member(), cast.stranger());
    let dir = cast.dir();
    let (dir, group) = (dir.to_str().unwrap(), cast.with_group());
    let name = format!("{}/web", owner.0);

    // By a name of the owner's, found by the others as OWNER/NAME.
    let mut first =
        cast.run(owner, &["--ns", "web", "--share", &group], &["mode", "0660", "get", "0x77", "1", "op", "0", "-1", "undo", "say", "got"]);
    let id = first.line();
    eventually(|| cast.ok(member, &["ls", "--ns", &name]).contains(&id));
    let mut second = cast.run(member, &["--ns", &name], &["mode", "0660", "get", "0x77", "1", "op", "0", "1"]);
    assert_eq!((second.line(), second.line(), second.end()), (id, "done".into(), Some(0)));
    assert_eq!((first.line(), first.line(), first.end()), ("done".into(), "got".into(), Some(0)));
    cast.refused(stranger, &["run", "--ns", &name, "--", "true"], 125, &["no access", "shared with others than you"]);
    cast.refused(stranger, &["ls", "--ns", &name], 1, &["no access"]);

    // By a directory: both say that it is shared.
    cast.ok(owner, &["run", "--dir", dir, "--share", &group, "--", "true"]);
    let gid = cast.group();
    assert_eq!(modes(Path::new(dir)), (0o750, gid, 0o660, gid));
    cast.ok(member, &["run", "--dir", dir, "--share", &group, "--", "true"]);
    cast.refused(member, &["run", "--dir", dir, "--", "true"], 125, &["belongs to user", "--ns OWNER/NAME", "--share"]);
    cast.refused(member, &["run", "--dir", dir, "--share", "all", "--", "true"], 125, &["shared with group", "manyway ns set"]);
    cast.refused(owner, &["run", "--dir", dir, "--share", "none", "--", "true"], 125, &["shared with group"]);
    cast.refused(stranger, &["run", "--dir", dir, "--share", &group, "--", "true"], 125, &["no access"]);
    cast.refused(stranger, &["run", "--dir", dir, "--share", "all", "--", "true"], 125, &["no access"]);
    // Nobody can share with a group that he is no member of.
    let other = format!("group:{}", stranger.1);
    let elsewhere = cast.top.join("elsewhere");
    cast.refused(owner, &["run", "--dir", elsewhere.to_str().unwrap(), "--share", &other, "--", "true"], 125, &["not permit", "member"]);
}

#[test]
fn inside_the_modes_of_the_sets_are_kept() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let (owner, member, stranger) = (cast.owner(), cast.member(), cast.stranger());
    let dir = cast.dir();
    let dir = dir.to_str().unwrap();
    let options = ["--dir", dir, "--share", "all"];
    let set = |key: &str, mode: &str| {
        let mut program = cast.run(owner, &options, &["mode", mode, "get", key, "1", "op", "0", "1"]);
        let id = program.line();
        assert_eq!((program.line(), program.end()), ("done".into(), Some(0)));
        id
    };
    let (closed, group, all) = (set("1", "0600"), set("2", "0640"), set("3", "0644"));
    assert_eq!((modes(Path::new(dir)).0, modes(Path::new(dir)).2), (0o755, 0o666));
    for user in [owner, member, stranger, ROOT] {
        // As ipcs(1) does, all are listed; what is in a set is seen by who may read it.
        let listing = cast.ok(user, &["ls", "--dir", dir]);
        assert!([&closed, &group, &all].iter().all(|id| listing.contains(*id)), "{listing}");
    }
    for (user, ids) in [(member, vec![&closed]), (stranger, vec![&closed, &group])] {
        for id in ids {
            cast.refused(user, &["show", id, "--dir", dir], 1, &["does not let you read it"]);
        }
        cast.ok(user, &["show", &all, "--dir", dir]);
        cast.refused(user, &["rm", &all, "--dir", dir], 1, &["only its owner, its creator and root may remove it"]);
        let mut program = cast.run(user, &options, &["mode", "0444", "get", "3", "1"]);
        assert_eq!((program.line(), program.end()), (all.clone(), Some(0)), "to read");
        assert_eq!(cast.run(user, &options, &["mode", "0666", "get", "3", "1"]).end(), Some(1), "to alter");
    }
    cast.ok(ROOT, &["show", &closed, "--dir", dir]);
    cast.ok(ROOT, &["rm", &closed, "--dir", dir]);
    cast.ok(owner, &["rm", &all, "--dir", dir]);
}

#[test]
fn what_root_shares_is_there_after_privileges_were_given_up() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let (uid, gid) = cast.member();
    let dir = cast.dir();
    let semtool = cast.bin("semtool");
    // Becomes another user and executes another program, as a server does for its workers.
    let script = format!("setpriv --reuid {uid} --regid {gid} --clear-groups {} get 0x11 1", semtool.display());
    let start = |options: &[&str]| {
        let arguments = [&["run", "--dir", dir.to_str().unwrap()], options, &["--", "sh", "-c", &script]].concat();
        cast.output(ROOT, &arguments)
    };
    let output = start(&[]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("cannot open namespace"), "{}", stderr(&output));
    fs::remove_dir_all(&dir).unwrap();
    let output = start(&["--share", &cast.with_group()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).trim().parse::<i32>().is_ok());
    // Root's own is trusted without a word.
    cast.ok((uid, gid), &["ls", "--dir", dir.to_str().unwrap()]);
    cast.ok((uid, gid), &["run", "--dir", dir.to_str().unwrap(), "--", "true"]);
    cast.refused(cast.stranger(), &["run", "--dir", dir.to_str().unwrap(), "--", "true"], 125, &["no access"]);
}

#[test]
fn the_owner_is_told_to_all_that_the_program_starts() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let (owner, member) = (cast.owner(), cast.member());
    let (dir, group) = (cast.dir(), cast.with_group());
    let dir = dir.to_str().unwrap();
    cast.ok(owner, &["run", "--dir", dir, "--share", &group, "--", "true"]);
    let inner = cast.bin("manyway");
    let show = format!(
        "echo $MANYWAY_OWNER; exec {} run -- sh -c 'echo $MANYWAY_OWNER; {} ls >/dev/null && echo seen'",
        inner.display(),
        inner.display()
    );
    let shown = cast.ok(member, &["run", "--dir", dir, "--share", &group, "--", "sh", "-c", &show]);
    assert_eq!(shown, format!("{0}\n{0}\nseen\n", owner.0));
    // Also where the program hands on an environment of its own making.
    let semtool = cast.bin("semtool");
    let bare = ["run", "--dir", dir, "--share", &group, "--", "env", "-i", semtool.to_str().unwrap(), "get", "0x22", "1"];
    assert!(cast.ok(member, &bare).trim().parse::<i32>().is_ok());
    // In one's own, shared with nobody, there is nothing to tell, and what an outer one told does not count.
    let own = cast.top.join("own");
    let mut command = cast.command(member, &["run", "--dir", own.to_str().unwrap(), "--", "sh", "-c", "echo ${MANYWAY_OWNER-none}"]);
    let output = command.env("MANYWAY_OWNER", owner.0.to_string()).output().unwrap();
    assert_eq!(stdout(&output), "none\n", "{}", stderr(&output));
}

#[test]
fn a_watcher_of_one_user_serves_the_others() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let (owner, member) = (cast.owner(), cast.member());
    let (dir, group) = (cast.dir(), cast.with_group());
    let options = ["--dir", dir.to_str().unwrap(), "--share", &group];
    let steps = ["mode", "0660", "get", "9", "1"];
    let mut first = cast.run(owner, &options, &[&steps[..], &["set", "0", "1", "say", "set"]].concat());
    first.line();
    assert_eq!((first.line(), first.end()), ("set".into(), Some(0)));
    let lock = dir.join("watcher.lock").metadata().unwrap();
    assert_eq!((lock.mode() & 0o777, lock.uid(), lock.gid()), (0o660, owner.0, cast.group()));
    // The member's run starts the watcher now; the owner waits for what the member holds.
    let mut holder = cast.run(member, &options, &[&steps[..], &["op", "0", "-1", "undo", "wait"]].concat());
    let id = holder.line();
    assert_eq!(holder.line(), "done");
    let mut sleeper = cast.run(owner, &options, &[&steps[..], &["op", "0", "-1"]].concat());
    sleeper.line();
    eventually(|| {
        let show = cast.ok(owner, &["show", &id, "--dir", dir.to_str().unwrap(), "--json"]);
        serde_json::from_str::<serde_json::Value>(&show).unwrap()["sleepers"] == 1
    });
    holder.kill();
    assert_eq!((sleeper.line(), sleeper.end()), ("done".into(), Some(0)));
}

#[test]
fn what_is_planted_is_told_apart() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let (owner, stranger) = (cast.owner(), cast.stranger());
    let place = |name: &str| cast.top.join(name).to_str().unwrap().to_owned();
    let run = |name: &str, words: &[&str]| {
        let dir = place(name);
        cast.refused(owner, &["run", "--dir", &dir, "--", "true"], 125, words);
    };
    // A good namespace, shared with all, where the owner would make his own.
    cast.ok(stranger, &["run", "--dir", &place("bait"), "--share", "all", "--", "true"]);
    run("bait", &["belongs to user", &stranger.0.to_string()]);
    std::os::unix::fs::symlink(place("bait"), place("link")).unwrap();
    run("link", &["symbolic link", "not followed"]);
    fs::write(place("file"), "").unwrap();
    run("file", &["no directory"]);
    let own = |name: &str| {
        cast.ok(owner, &["run", "--dir", &place(name), "--", "true"]);
        cast.top.join(name)
    };
    let dir = own("arena-link");
    fs::rename(dir.join("arena-v1"), dir.join("else")).unwrap();
    std::os::unix::fs::symlink("else", dir.join("arena-v1")).unwrap();
    run("arena-link", &["its arena is a link"]);
    let dir = own("hard-link");
    fs::hard_link(dir.join("arena-v1"), dir.join("else")).unwrap();
    run("hard-link", &["hard link"]);
    let dir = own("given-away");
    chown(dir.join("arena-v1"), Some(stranger.0), None).unwrap();
    run("given-away", &["no access"]);
    let dir = own("open");
    fs::set_permissions(dir.join("arena-v1"), Permissions::from_mode(0o666)).unwrap();
    run("open", &["can be written by others", "chmod go-w"]);
    fs::create_dir(place("above")).unwrap();
    fs::set_permissions(place("above"), Permissions::from_mode(0o777)).unwrap();
    run("above/ns", &["anybody can rename", "chmod +t"]);

    // A pipe in place of the watcher's lock: no watcher, and nobody waits for anything.
    let dir = own("pipe");
    // The watcher of the first `run` may be about to make its lock.
    eventually(|| {
        let _ = fs::remove_file(dir.join("watcher.lock"));
        let mut pipe = Command::new("mkfifo");
        pipe.arg("-m").arg("666").arg(dir.join("watcher.lock")).stderr(std::process::Stdio::null()).status().unwrap().success()
    });
    cast.ok(owner, &["run", "--dir", &place("pipe"), "--", "true"]);

    // A place of another user's is no place for names.
    let base = format!("/dev/shm/manyway-{}", owner.0);
    if !Path::new("/run/manyway").join(owner.0.to_string()).exists() {
        let _ = fs::remove_dir_all(&base);
        fs::create_dir(&base).unwrap();
        chown(&base, Some(stranger.0), None).unwrap();
        cast.refused(owner, &["run", "--ns", "x", "--", "true"], 125, &["no place for a namespace", "belongs to user"]);
    }
}

#[test]
fn a_set_user_id_program_is_refused_with_the_reason() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let program = cast.bin("privileged");
    assert!(Command::new("cp").arg(cast.bin("semtool")).arg(&program).status().unwrap().success());
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    let dir = cast.dir();
    let arguments = ["run", "--dir", dir.to_str().unwrap(), "--", program.to_str().unwrap(), "get", "1", "1"];
    cast.refused(cast.member(), &arguments, 125, &["set-user-id (user 0)", "loader preloads nothing"]);
}
