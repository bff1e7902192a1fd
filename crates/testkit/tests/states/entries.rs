//! That nothing is left out: every public function of the engine has a case, or is shown to store nothing.

use std::collections::BTreeSet;
use std::path::Path;

use manyway_sem::{Engine, Fairness, OpenOptions};
use manyway_testkit::image::Image;
use manyway_testkit::trace::Tracer;
use syn::visit::Visit;

use crate::cases::{self, Call, HOLD, TAKE, TAKE_BOTH};
use crate::clock;
use crate::stage::Stage;

/// Functions that store nothing in the arena, so that a death in them leaves nothing.
const READERS: &[(&str, Call)] = &[
    ("limits", |s| {
        s.victim.engine.limits();
    }),
    ("fairness", |s| {
        s.victim.engine.fairness();
    }),
    ("array_len", |s| {
        let _ = s.victim.engine.array_len(s.victim.t, s.id.get(), true);
    }),
    ("info", |s| {
        s.victim.engine.info();
    }),
    ("for_each_set", |s| s.victim.engine.for_each_set(s.victim.t, &mut |_, _| {})),
    ("for_each_holder", |s| {
        let _ = s.victim.engine.for_each_holder(s.victim.t, s.id.get(), &mut |_| {});
    }),
    ("for_each_process", |s| s.victim.engine.for_each_process(&mut |_| {})),
    ("operations", |s| {
        s.victim.engine.operations(s.victim.t);
    }),
    ("in_section", |s| {
        Engine::in_section(s.victim.t);
    }),
    ("after_handler", |s| s.victim.engine.after_handler(s.victim.t, 0)),
    ("wait_doorbell", |s| {
        s.victim.engine.wait_doorbell(0, 0);
        let now = s.victim.engine.wait_doorbell(u32::MAX, 0);
        s.victim.engine.wait_doorbell(now, 1);
    }),
    ("share", |s| {
        s.victim.engine.share();
    }),
    ("damage", |s| {
        s.victim.engine.damage();
    }),
    ("file", |s| {
        s.victim.engine.file();
    }),
    ("check", |s| {
        let _ = s.victim.engine.check();
    }),
    ("watcher", |s| {
        s.victim.engine.watcher();
    }),
    // Of an address that is not the arena's; one that is has no file behind it any more.
    ("replace_lost", |s| {
        s.victim.engine.replace_lost(8);
    }),
    ("forget_credentials", |s| s.victim.engine.forget_credentials()),
    ("forget_credentials_of_thread", |s| s.victim.engine.forget_credentials_of_thread()),
    ("forget_group_of_thread", |s| s.victim.engine.forget_group_of_thread()),
    ("forget_capabilities", |s| s.victim.engine.forget_capabilities()),
    ("distrust_context", |s| s.victim.engine.distrust_context()),
    ("defer", |s| Engine::defer(s.victim.t)),
    // These need the engine to themselves: one of their own.
    ("set_deferred_hook", |s| {
        let engine = Engine::open(&s.path, &OpenOptions::default());
        if let Ok(mut e) = engine {
            e.set_deferred_hook(|_| {});
            std::mem::forget(e);
        }
    }),
    ("set_attached_hook", |s| {
        let engine = Engine::open(&s.path, &OpenOptions::default());
        if let Ok(mut e) = engine {
            e.set_attached_hook(|| {});
            std::mem::forget(e);
        }
    }),
    // Of an arena that is there; one that is being made has no name yet.
    ("open", |s| {
        let _ = Engine::open(&s.path, &OpenOptions::default()).map(|e| Box::leak(Box::new(e)));
    }),
];

/// The public functions of `impl Engine` in the engine's source.
fn entry_points() -> BTreeSet<String> {
    struct Found(BTreeSet<String>);
    impl Visit<'_> for Found {
        fn visit_item_impl(&mut self, block: &syn::ItemImpl) {
            let of_engine = matches!(&*block.self_ty, syn::Type::Path(p) if p.path.is_ident("Engine"));
            if !of_engine || block.trait_.is_some() {
                return;
            }
            for item in &block.items {
                if let syn::ImplItem::Fn(f) = item
                    && matches!(f.vis, syn::Visibility::Public(_))
                {
                    self.0.insert(f.sig.ident.to_string());
                }
            }
        }
    }
    let mut found = Found(BTreeSet::new());
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../sem/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the engine's source") {
            let path = entry.expect("the engine's source").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                found.visit_file(&syn::parse_file(&text).expect("Rust"));
            }
        }
    }
    found.0
}

/// Every entry point has a case or is a reader; and none is named that is not there.
pub fn all_have_cases() -> Result<(), String> {
    let there = entry_points();
    let with_case: BTreeSet<String> = cases::all().iter().flat_map(|c| c.entry.iter().map(|e| (*e).to_owned())).collect();
    let readers: BTreeSet<String> = READERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let known: BTreeSet<String> = with_case.union(&readers).cloned().collect();
    let without: Vec<&String> = there.difference(&known).collect();
    if !without.is_empty() {
        return Err(format!("entry points of the engine without a case in tests/states: {without:?}"));
    }
    let unknown: Vec<&String> = known.difference(&there).collect();
    if there.len() < 20 || !unknown.is_empty() {
        return Err(format!("{} entry points were found in the source; these are not among them: {unknown:?}", there.len()));
    }
    Ok(())
}

/// What is said to store nothing stores nothing, the same bytes neither.
pub fn readers_store_nothing() -> Result<(), String> {
    clock::stop();
    let stage = Stage::new(Fairness::Strict);
    stage.set(&[0, 1]);
    stage.sleeper(TAKE);
    stage.sleeper(TAKE_BOTH);
    stage.victim.op(stage.neighbour, HOLD);
    stage.disguise(&stage.victim);
    stage.curtain();
    let mut tracer = Tracer::new(stage.arena.file()).map_err(|e| e.to_string())?;
    for (name, call) in READERS {
        let before = Image::of(&stage.arena);
        let trace = tracer.trace_stores(&stage.arena, || call(&stage)).map_err(|e| e.to_string())?;
        if !trace.wrote_nothing() || before.differs(&stage.arena).is_some() {
            return Err(format!("{name} is listed as a reader and makes {} stores", trace.stores()));
        }
    }
    // The tracer is not blind: a call that stores is seen.
    let trace = tracer.trace_stores(&stage.arena, || stage.victim.attach()).map_err(|e| e.to_string())?;
    if trace.wrote_nothing() { Err("a call that takes the registry's lock stores nothing".to_owned()) } else { Ok(()) }
}
