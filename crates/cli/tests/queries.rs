//! `manyway ls`, `show` and `rm` on namespaces that programs use.

#[allow(dead_code)]
mod common;

use common::{Namespace, eventually, stderr};
use serde_json::{Value, json};

/// Sets by id, as `ls --json` lists them.
fn ids(namespace: &Namespace) -> Vec<i64> {
    let listing = namespace.json(&["ls"]);
    listing["sets"].as_array().unwrap().iter().map(|set| set["id"].as_i64().unwrap()).collect()
}

/// A set that a dead program left; returns its id.
fn left_behind(namespace: &Namespace, arguments: &[&str]) -> i64 {
    let mut program = namespace.semtool(arguments);
    let id = program.line().parse().unwrap();
    assert_eq!(program.end(), Some(0));
    id
}

#[test]
fn an_empty_namespace() {
    let namespace = Namespace::new();
    namespace.ok(&["run", "--", "true"]);
    assert_eq!(namespace.json(&["ls"]), json!({ "namespace": namespace.dir(), "operations": 0, "sets": [], "other_layouts": [] }));
    let columns = "key semid owner perms nsems creator holders sleepers";
    assert_eq!(namespace.ok(&["ls"]).split_whitespace().collect::<Vec<_>>().join(" "), columns);
}

#[test]
fn ls_shows_creator_holders_and_sleepers() {
    let namespace = Namespace::new();
    let mut holder = namespace.semtool(&["get", "0x4d57", "3", "set", "1", "1", "op", "1", "-1", "undo", "wait"]);
    let id = holder.line();
    holder.line();
    let mut sleeper = namespace.semtool(&["get", "0x4d57", "3", "op", "1", "-1"]);
    sleeper.line();
    eventually(|| namespace.json(&["ls"])["sets"][0]["sleepers"] == 1);
    let listing = namespace.json(&["ls"]);
    assert!(listing["operations"].as_u64().unwrap() >= 1, "{listing}");
    let set = &listing["sets"][0];
    let mut fields: Vec<&str> = set.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort();
    let documented = ["creator", "ctime", "gid", "holders", "id", "key", "nsems", "otime", "owner", "perms", "sleepers", "uid"];
    assert_eq!(fields, documented);
    assert_eq!(set["id"], id.parse::<i64>().unwrap());
    assert_eq!((&set["key"], &set["perms"], &set["nsems"], &set["holders"]), (&json!("0x00004d57"), &json!("600"), &json!(3), &json!(1)));
    let comm = set["creator"]["comm"].as_str().unwrap();
    assert!(comm.starts_with("semtool"), "{comm}");
    assert_eq!((&set["creator"]["pid"], &set["creator"]["alive"]), (&json!(holder.pid()), &json!(true)));
    let row = namespace.ok(&["ls"]).lines().nth(1).unwrap().to_owned();
    assert!(row.starts_with(&format!("0x00004d57  {id:>5}  ")) && row.contains(&format!("{} (semtool", holder.pid())), "{row}");
}

#[test]
fn show_tells_values_holders_and_who_sleeps_for_what() {
    let namespace = Namespace::new();
    let mut holder = namespace.semtool(&["get", "7", "2", "set", "0", "3", "op", "0", "-2", "undo", "wait"]);
    let id = holder.line();
    holder.line();
    let mut sleeper = namespace.semtool(&["get", "7", "2", "op", "0", "-4", "undo"]);
    sleeper.line();
    let mut zero = namespace.semtool(&["get", "7", "2", "op", "0", "0"]);
    zero.line();
    eventually(|| namespace.json(&["show", &id])["sleepers"] == 2);

    let set = namespace.json(&["show", &id]);
    let first = &set["semaphores"][0];
    assert_eq!((&first["value"], &first["ncnt"], &first["zcnt"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(first["last"]["pid"], holder.pid());
    assert_eq!((&first["holders"][0]["adj"], &first["holders"][0]["process"]["pid"]), (&json!(2), &json!(holder.pid())));
    let second = &set["semaphores"][1];
    assert_eq!((&second["value"], &second["last"], &second["holders"]), (&json!(0), &Value::Null, &json!([])));
    let waiting = set["waiting"].as_array().unwrap();
    let of = |pid: u32| waiting.iter().find(|w| w["process"]["pid"] == pid).unwrap();
    assert_eq!(of(sleeper.pid())["blocker"], json!({ "num": 0, "op": -4, "nowait": false, "undo": true }));
    assert_eq!(of(zero.pid())["blocker"]["op"], 0);
    assert!(of(zero.pid())["age_ms"].as_u64().unwrap() < 20_000);
    assert_eq!(set["cycles"], json!([]));

    let text = namespace.ok(&["show", &id]);
    assert!(text.contains(&format!("{} (semtool", sleeper.pid())) && text.contains("0: -4 undo") && text.contains("0: zero"), "{text}");
    assert!(!text.contains("cycle") && !text.contains('\x1b'), "{text}");
}

#[test]
fn show_names_a_wait_for_cycle() {
    let namespace = Namespace::new();
    let start = |mine: &str, other: &str| {
        let mut program = namespace.semtool(&["get", "7", "2", "op", mine, "1", "op", mine, "-1", "undo", "wait", "op", other, "-1"]);
        let id = program.line();
        assert_eq!((program.line(), program.line()), ("done".into(), "done".into()));
        (program, id)
    };
    let (mut one, id) = start("0", "1");
    let (mut two, _) = start("1", "0");
    one.close_input();
    two.close_input();
    eventually(|| namespace.json(&["show", &id])["sleepers"] == 2);
    let cycles = &namespace.json(&["show", &id])["cycles"];
    assert_eq!(cycles.as_array().unwrap().len(), 1, "{cycles}");
    let steps: Vec<_> = cycles[0]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (step["process"]["pid"].as_u64().unwrap() as u32, step["num"].as_u64().unwrap()))
        .collect();
    let mut expected = [(one.pid(), 1), (two.pid(), 0)];
    expected.sort();
    assert_eq!(steps, expected);
    let text = namespace.ok(&["show", &id]);
    assert!(
        text.contains("Wait-for cycle") && text.contains(&format!("sleeps for semaphore 1 of set {id}, held by {}", two.pid())),
        "{text}"
    );
}

#[test]
fn rm_by_id_and_by_key() {
    let namespace = Namespace::new();
    let one = left_behind(&namespace, &["get", "0", "1"]);
    let two = left_behind(&namespace, &["get", "0x51", "1"]);
    let three = left_behind(&namespace, &["get", "0x52", "1"]);
    namespace.ok(&["rm", "--key", "0x51"]);
    assert_eq!(ids(&namespace), [one, three]);
    assert_eq!(namespace.ok(&["rm", &one.to_string()]), format!("removed {one}\n"));

    // What can be removed is, and the rest is told.
    let output = namespace.output(&["rm", &two.to_string(), &three.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("there is no set with id {two}")), "{}", stderr(&output));
    assert!(ids(&namespace).is_empty());
    let output = namespace.output(&["rm", "--key", "0x51"]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("no set with key 0x00000051"), "{}", stderr(&output));
    let output = namespace.output(&["show", &two.to_string()]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("manyway ls"), "{}", stderr(&output));
}

#[test]
fn rm_ends_the_sleep_of_others() {
    let namespace = Namespace::new();
    let mut sleeper = namespace.semtool(&["get", "7", "1", "op", "0", "-1"]);
    let id = sleeper.line();
    eventually(|| namespace.json(&["ls"])["sets"][0]["sleepers"] == 1);
    namespace.ok(&["rm", &id]);
    assert_eq!(sleeper.end(), Some(1), "EIDRM");
}

#[test]
fn stale_is_what_nobody_alive_uses_and_goes_on_yes() {
    let namespace = Namespace::new();
    let stale = left_behind(&namespace, &["get", "1", "1", "op", "0", "1"]);
    let untouched = left_behind(&namespace, &["get", "2", "1"]);
    let used = left_behind(&namespace, &["get", "3", "1"]);
    let mut user = namespace.semtool(&["get", "3", "1", "op", "0", "1", "wait"]);
    user.line();
    user.line();
    let mut owner = namespace.semtool(&["get", "4", "1", "wait"]);
    let owned: i64 = owner.line().parse().unwrap();

    let listed = namespace.json(&["rm", "--stale"]);
    let chosen: Vec<_> = listed["chosen"].as_array().unwrap().iter().map(|set| set["id"].as_i64().unwrap()).collect();
    assert_eq!((chosen, &listed["removed"]), (vec![stale, untouched], &json!([])));
    assert_eq!(ids(&namespace), [stale, untouched, used, owned], "removed without --yes");

    assert_eq!(namespace.json(&["rm", "--stale", "--yes"])["removed"], json!([stale, untouched]));
    assert_eq!(ids(&namespace), [used, owned]);
    assert!(namespace.ok(&["rm", "--all"]).contains("(semtool"));
    assert_eq!(namespace.json(&["rm", "--all", "--yes"])["removed"], json!([used, owned]));
    assert!(ids(&namespace).is_empty());
}
