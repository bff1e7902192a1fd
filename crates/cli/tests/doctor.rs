//! `manyway doctor`, and the other queries, on namespaces that are sound and on damaged ones.

#[allow(dead_code)]
mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;

use common::{Namespace, stderr, stdout};
use serde_json::Value;

/// docs/segment.md: where the id table is, and a set's head and cells.
const IDS_AT: u64 = 32 << 10;
const HEAD: u64 = 128;

/// A namespace with a set of three semaphores that nobody uses.
struct Damaged {
    namespace: Namespace,
    id: i64,
}

impl Damaged {
    fn new() -> Damaged {
        let namespace = Namespace::new();
        let mut program = namespace.semtool(&["get", "0x4d57", "3", "set", "1", "1"]);
        let id = program.line().parse().unwrap();
        assert_eq!(program.end(), Some(0));
        Damaged { namespace, id }
    }
    fn file(&self) -> File {
        File::options().read(true).write(true).open(self.namespace.dir().join("arena-v1")).unwrap()
    }
    fn read(&self, at: u64) -> u64 {
        let mut b = [0; 8];
        self.file().read_exact_at(&mut b, at).unwrap();
        u64::from_le_bytes(b)
    }
    fn write(&self, at: u64, w: u64) {
        self.file().write_all_at(&w.to_le_bytes(), at).unwrap();
    }
    /// Where the set lies.
    fn set(&self) -> u64 {
        (self.read(IDS_AT + 8 * (self.id as u64 & 0x7fff)) >> 22 & 0x3ff_ffff) << 12
    }
    fn doctor(&self) -> (Option<i32>, Value) {
        let out = self.namespace.output(&["doctor", "--json"]);
        (out.status.code(), serde_json::from_str(&stdout(&out)).unwrap())
    }
    /// What the doctor says of the namespace.
    fn said(&self) -> String {
        let (code, v) = self.doctor();
        assert_eq!((code, &v["sound"]), (Some(1), &Value::Bool(false)), "{v}");
        v["arena"].as_array().unwrap().iter().map(|l| format!("{}: {}\n", l["subject"], l["what"])).collect()
    }
    /// All queries end, the set can be removed, and then all is sound.
    fn is_shown_and_removed(&self) {
        let id = self.id.to_string();
        assert_eq!(self.namespace.output(&["ls"]).status.code(), Some(0));
        self.namespace.output(&["show", &id]);
        self.namespace.ok(&["rm", &id]);
        let listing = self.namespace.json(&["ls"]);
        assert_eq!(listing["sets"].as_array().unwrap().len(), 0, "{listing}");
    }
}

#[test]
fn a_sound_namespace() {
    let d = Damaged::new();
    let (code, v) = d.doctor();
    assert_eq!((code, &v["sound"]), (Some(0), &Value::Bool(true)), "{v}");
    let text = d.namespace.ok(&["doctor"]);
    assert!(text.contains("sound: 1 sets of 3 semaphores") && !text.contains('\x1b'), "{text}");
    let mut holder = d.namespace.semtool(&["get", "0x4d57", "3", "op", "1", "-1", "undo", "wait"]);
    holder.line();
    holder.line();
    assert_eq!(d.doctor().0, Some(0), "in use");
    holder.kill();
    assert_eq!(d.doctor().0, Some(0), "what the dead leave is no damage: {}", d.doctor().1);
}

#[test]
fn a_cell_that_is_locked_by_nobody() {
    let d = Damaged::new();
    let cell = d.set() + HEAD + 64;
    d.write(cell, d.read(cell) & 0x3ff_ffff_ffff | 1 << 15 | 999 << 42);
    let said = d.said();
    assert!(said.contains("semaphore 1 is locked by thread slot 999, which is nobody's"), "{said}");
    d.is_shown_and_removed();
}

#[test]
fn a_set_that_says_that_it_is_gone() {
    let d = Damaged::new();
    d.write(d.set() + 64, 1 << 18);
    d.write(d.set() + HEAD, 1 << 18);
    let said = d.said();
    assert!(said.contains("is no lock word") && said.contains("semaphore 0 says that it is gone"), "{said}");
    let out = d.namespace.output(&["show", &d.id.to_string()]);
    assert!(out.status.code() == Some(1) && stderr(&out).contains("is damaged"), "{}", stderr(&out));
    assert!(d.said().contains("calls have met damage"), "{}", d.said());
    d.is_shown_and_removed();
}

#[test]
fn an_id_that_leads_nowhere() {
    let d = Damaged::new();
    let at = IDS_AT + 8 * (d.id as u64 & 0x7fff);
    d.write(at, d.read(at) ^ 1 << 40);
    let said = d.said();
    assert!(said.contains("where no set is") && said.contains("0 of 0 are there"), "{said}");
    assert_eq!(d.namespace.output(&["ls"]).status.code(), Some(0));
}

#[test]
fn counts_queues_and_keys() {
    let d = Damaged::new();
    let set = d.set();
    // The second cell counts a holder; the first one's zero queue leads to a slot that is not in it; the key table is empty.
    d.write(set + HEAD + 64 + 40, 1 << 32 | 5);
    d.write(set + HEAD + 16, 1 | 1 << 32);
    for at in (4096..20480).step_by(8) {
        d.write(at, 0);
    }
    let said = d.said();
    for what in ["counts 1 holders, there are 0", "leads to thread slot 0, which is not in it", "is not found by its key"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    d.is_shown_and_removed();
}

#[test]
fn a_file_that_is_cut_short() {
    let d = Damaged::new();
    d.file().set_len(1 << 20).unwrap();
    let said = d.said();
    assert!(said.contains("cut short"), "{said}");
    let out = d.namespace.output(&["doctor", "--bad-option"]);
    assert_eq!(out.status.code(), Some(2));
}
