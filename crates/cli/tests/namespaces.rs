//! `manyway ns` and `manyway env`.

#[allow(dead_code)]
mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use common::cast::{Cast, ROOT, can};
use common::{Namespace, eventually, manyway, semtool, stderr, stdout};
use serde_json::{Value, json};

/// `manyway ns SUBCOMMAND ARGUMENTS… --dir …`
fn ns(namespace: &Namespace, arguments: &[&str]) -> std::process::Output {
    let mut command = manyway();
    command.arg("ns").args(arguments).arg("--dir").arg(namespace.dir()).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn ok(output: std::process::Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

#[track_caller]
fn refused(output: std::process::Output, words: &[&str]) {
    let said = stderr(&output);
    assert!(output.status.code() == Some(1) && words.iter().all(|word| said.contains(word)), "{said}{}", stdout(&output));
}

#[test]
fn ls_tells_what_there_is() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let (owner, member) = (cast.owner(), cast.member());
    assert_eq!(serde_json::from_str::<Value>(&cast.ok(owner, &["ns", "ls", "--json"])).unwrap(), json!({ "namespaces": [] }));
    let limits = "250,32000,32,128";
    let options = ["--ns", "web", "--share", &cast.with_group(), "--limits", limits, "--fairness", "barging"];
    let mut program = cast.run(owner, &options, &["get", "1", "3", "get", "2", "4", "wait"]);
    program.line();
    program.line();
    cast.ok(owner, &["run", "--", "true"]);
    let list: Value = serde_json::from_str(&cast.ok(owner, &["ns", "ls", "--json"])).unwrap();
    let names: Vec<&str> = list["namespaces"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "web"]);
    let web = &list["namespaces"][1];
    let group = format!("group {}", cast.group());
    let seen = ["share", "fairness", "limits", "sets", "semaphores", "processes", "uid", "error"].map(|field| web[field].clone());
    assert_eq!(json!(seen), json!([group, "barging", limits, 2, 7, 1, owner.0, Value::Null]), "{web}");
    assert!(web["bytes"].as_u64().unwrap() >= 20 << 10);
    let default = &list["namespaces"][0];
    assert_eq!((&default["share"], &default["sets"], &default["processes"]), (&json!("nobody"), &json!(0), &json!(0)));
    let text = cast.ok(owner, &["ns", "ls"]);
    let row = text.lines().find(|line| line.starts_with("web ")).unwrap();
    assert!(row.contains(&group) && row.contains(limits) && row.contains(" KiB"), "{text}");

    // Those of others, by the name that --ns takes; what one may not open is said.
    assert!(!cast.ok(member, &["ns", "ls"]).contains("web"));
    let all: Value = serde_json::from_str(&cast.ok(member, &["ns", "ls", "--all", "--json"])).unwrap();
    let find = |name: &str| all["namespaces"].as_array().unwrap().iter().find(|one| one["name"] == format!("{}/{name}", owner.0)).cloned();
    assert_eq!(find("web").unwrap()["sets"], 2);
    assert!(find("default").is_none(), "its directory shows nothing");
    let all = cast.ok(ROOT, &["ns", "ls", "--all"]);
    assert!(all.contains(&format!("{}/default", owner.0)) && all.contains(&format!("{}/web", owner.0)), "{all}");
    program.end();
}

#[test]
fn set_changes_limits_in_use() {
    let namespace = Namespace::new();
    let mut program = namespace.semtool(&["get", "0", "3", "say", "made", "wait", "get", "0", "4"]);
    program.line();
    program.line();
    let said = ok(ns(&namespace, &["set", "--limits", "3,100,10,2"]));
    assert!(said.contains("limits 3,100,10,2"), "{said}");
    // It had opened the namespace before.
    program.close_input();
    assert_eq!((program.line(), program.end()), (String::new(), Some(1)), "EINVAL: more than SEMMSL");
    // One set is there, one more may be.
    assert_eq!(namespace.semtool(&["get", "0", "1", "get", "0", "1"]).end(), Some(1), "ENOSPC: more than SEMMNI");
    namespace.ok(&["run", "--limits", "3,100,10,2", "--", "true"]);
    refused(ns(&namespace, &["set", "--limits", "3,100,1,2"]), &["cannot become 1"]);
    refused(ns(&namespace, &["set", "--limits", "0,0,0,0"]), &["limits are not possible"]);
    let set: Value = serde_json::from_str(&ok(ns(&namespace, &["set", "--limits", "250,32000,32,128", "--json"]))).unwrap();
    assert_eq!((&set["limits"], &set["sets"]), (&json!("250,32000,32,128"), &json!(2)));
    assert_eq!(namespace.semtool(&["get", "0", "4", "get", "0", "5"]).end(), Some(0));
}

#[test]
fn set_changes_fairness_when_nobody_uses_it() {
    let namespace = Namespace::new();
    let mut program = namespace.semtool(&["get", "7", "1", "wait"]);
    program.line();
    refused(ns(&namespace, &["set", "--fairness", "barging"]), &["is in use by", &program.pid().to_string(), "cannot be changed"]);
    // What it is already is no change.
    assert!(ok(ns(&namespace, &["set", "--fairness", "strict"])).contains("fairness strict"));
    program.end();
    let mut idle = namespace.semtool(&["say", "idle", "wait"]);
    idle.line();
    refused(ns(&namespace, &["set", "--fairness", "barging"]), &["is in use by", &idle.pid().to_string()]);
    idle.end();
    assert!(ok(ns(&namespace, &["set", "--fairness", "barging"])).contains("fairness barging"));
    namespace.ok(&["run", "--fairness", "barging", "--", "true"]);
}

#[test]
fn set_changes_who_gets_in() {
    if !can() {
        return;
    }
    let cast = Cast::new();
    let (owner, member, stranger) = (cast.owner(), cast.member(), cast.stranger());
    let (dir, group) = (cast.dir(), cast.with_group());
    let dir = dir.to_str().unwrap();
    let modes = || {
        let of = |path: &std::path::Path| path.metadata().unwrap();
        let (d, a, w) = (of(dir.as_ref()), of(&cast.dir().join("arena-v1")), of(&cast.dir().join("watcher.lock")));
        (d.mode() & 0o777, a.mode() & 0o777, w.mode() & 0o777, a.gid())
    };
    let mut first = cast.run(owner, &["--dir", dir], &["mode", "0666", "get", "1", "1", "say", "made", "wait", "op", "0", "1"]);
    let id = first.line();
    first.line();
    let lists = |user, yes: bool| {
        let output = cast.output(user, &["ls", "--dir", dir]);
        assert_eq!(output.status.success() && stdout(&output).contains(&id), yes, "{user:?}: {}", stderr(&output));
    };
    let set = |with: &str| cast.ok(owner, &["ns", "set", "--dir", dir, "--share", with]);
    lists(member, false);
    assert!(set(&group).contains(&format!("shared with group {}", cast.group())));
    assert_eq!(modes(), (0o750, 0o660, 0o660, cast.group()));
    lists(member, true);
    lists(stranger, false);
    set("all");
    assert_eq!((modes().0, modes().1, modes().2), (0o755, 0o666, 0o666));
    lists(stranger, true);
    // Whoever is in stays in.
    let mut inside = cast.run(stranger, &["--dir", dir, "--share", "all"], &["mode", "0666", "get", "1", "1", "wait", "op", "0", "-1"]);
    inside.line();
    set("none");
    assert_eq!((modes().0, modes().1, modes().2), (0o700, 0o600, 0o600));
    lists(stranger, false);
    lists(member, false);
    cast.refused(stranger, &["run", "--dir", dir, "--share", "all", "--", "true"], 125, &["no access"]);
    inside.close_input();
    first.close_input();
    assert_eq!((first.line(), first.end()), ("done".into(), Some(0)));
    assert_eq!((inside.line(), inside.end()), ("done".into(), Some(0)));

    set(&group);
    cast.refused(member, &["ns", "set", "--dir", dir, "--share", "all"], 1, &["belongs to user", "Only its owner and root"]);
    cast.refused(member, &["ns", "rm", "--dir", dir, "--force"], 1, &["belongs to user"]);
    cast.ok(ROOT, &["ns", "set", "--dir", dir, "--share", "none"]);
    assert_eq!(modes().1, 0o600);
    cast.ok(ROOT, &["ns", "rm", "--dir", dir, "--force"]);
    assert!(!cast.dir().exists());
}

#[test]
fn rm_ends_a_namespace() {
    let namespace = Namespace::new();
    refused(ns(&namespace, &["rm"]), &["there is no namespace"]);
    namespace.ok(&["run", "--", "true"]);
    ok(ns(&namespace, &["rm"]));
    assert!(!namespace.dir().exists());

    let mut sleeper = namespace.semtool(&["get", "7", "1", "op", "0", "-1"]);
    sleeper.line();
    eventually(|| namespace.json(&["ls"])["sets"][0]["sleepers"] == 1);
    let mut user = namespace.semtool(&["get", "7", "1", "wait", "get", "7", "1"]);
    user.line();
    refused(ns(&namespace, &["rm"]), &["has 1 sets", &user.pid().to_string(), "--force"]);
    fs::write(namespace.dir().join("notes"), "mine").unwrap();
    let output = ns(&namespace, &["rm", "--force", "--json"]);
    assert!(stderr(&output).contains("not Manyway's"), "{}", stderr(&output));
    let removed: Value = serde_json::from_str(&ok(output)).unwrap();
    let pids: Vec<u64> = removed["processes"].as_array().unwrap().iter().map(|process| process["pid"].as_u64().unwrap()).collect();
    assert!([&sleeper, &user].iter().all(|program| pids.contains(&program.pid().into())), "{removed}");
    assert_eq!(removed["sets"], 1);
    assert_eq!(fs::read_dir(namespace.dir()).unwrap().count(), 1, "what is not Manyway's stays, and nothing else");
    assert_eq!(sleeper.end(), Some(1), "EIDRM");
    // The next one under the name is another namespace, which the old program does not see.
    let mut other = namespace.semtool(&["get", "7", "1", "wait"]);
    other.line();
    user.close_input();
    assert_eq!((user.line(), user.end()), (String::new(), Some(1)), "ENOSYS");
    other.end();
}

#[test]
fn env_for_a_shell() {
    let namespace = Namespace::new();
    let script =
        format!("eval \"$({} env --dir {})\" && {} get 5 1", env!("CARGO_BIN_EXE_manyway"), namespace.dir().display(), semtool().display());
    let output = Command::new("sh").arg("-c").arg(&script).env_remove("LD_PRELOAD").env_remove("MANYWAY_DIR").output().unwrap();
    let id = ok(output);
    assert!(namespace.ok(&["ls"]).contains(id.trim()), "{id}");

    let answer = namespace.output(&["env", "--format", "json"]);
    let answer: Value = serde_json::from_str(&ok(answer)).unwrap();
    assert_eq!(answer["env"]["MANYWAY_DIR"], answer["namespace"]);
    assert_eq!(answer["env"]["LD_PRELOAD"], answer["library"]);
    assert!(fs::exists(answer["library"].as_str().unwrap()).unwrap());
    let unit = namespace.ok(&["env", "--format", "systemd"]);
    assert!(unit.contains("\n[Service]\n") && unit.contains(&format!("\"MANYWAY_DIR={}\"", namespace.dir().display())), "{unit}");
    let options = namespace.ok(&["env", "--format", "docker"]);
    assert!(options.starts_with("--pid=host ") && options.contains(&format!("--volume={0}:{0} ", namespace.dir().display())), "{options}");
}
