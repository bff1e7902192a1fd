//! Who comes next after a death: calls of several kinds, none of which changes what the arena means once it is over.

use manyway_sem::Errno;
use manyway_sem::abi::{IPC_NOWAIT, SEM_UNDO};
use manyway_testkit::invariants::Meaning;

use crate::stage::{Actor, NEIGHBOUR_KEY, Stage, op};

/// What the sleepers of a case wait for: what the next caller must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touches {
    /// It may take a unit of semaphore 0 and give it back.
    TakeAndGive,
    /// It may give one and take it back.
    GiveAndTake,
    /// Neither.
    Nothing,
}

type Kind = (&'static str, fn(&Stage, &Actor) -> Claim);

/// What a call said.
enum Claim {
    Nothing,
    /// The value of semaphore 0 of the case's set.
    Value(Result<i32, Errno>),
    /// Whether it is zero.
    Zero(Result<(), Errno>),
    /// All its values.
    Values(Result<Vec<u16>, Errno>),
    /// Whether this was so.
    Must(bool),
    /// Whether this was so, unless the other set is gone.
    MustWhileThere(bool),
}

/// What the next caller was told.
pub struct Told {
    pub kind: &'static str,
    claim: Claim,
}

const KINDS: &[Kind] = &[
    ("reap, told", |s, a| {
        a.engine.reap(a.t, Some(s.dead[0].pid));
        Claim::Nothing
    }),
    ("wait for zero", |s, a| Claim::Zero(a.engine.semop(a.t, s.id.get(), &[op(0, 0, IPC_NOWAIT)], None))),
    ("GETVAL", |s, a| Claim::Value(a.engine.getval(a.t, s.id.get(), 0))),
    ("semget, other key", |s, a| Claim::Must(a.engine.semget(a.t, 0x7001, 0, 0) == Err(s.unless_ended(Errno::ENOENT)))),
    ("GETALL", |s, a| {
        let mut values = [0; 16];
        let n = a.engine.array_len(a.t, s.id.get(), false);
        // Those of large sets are compared by the others.
        Claim::Values(match n {
            Ok(n) if n > 16 => return Claim::Nothing,
            Ok(n) => a.engine.getall(a.t, s.id.get(), &mut values[..n]).map(|()| values[..n].to_vec()),
            Err(e) => Err(e),
        })
    }),
    ("two that wait for zero", |s, a| {
        let r = a.engine.semop(a.t, s.id.get(), &[op(0, 0, IPC_NOWAIT), op(0, 0, IPC_NOWAIT)], None);
        Claim::Zero(r)
    }),
    ("another set, with undo", |s, a| {
        let take = a.engine.semop(a.t, s.neighbour, &[op(0, -1, SEM_UNDO)], None);
        let give = a.engine.semop(a.t, s.neighbour, &[op(0, 1, SEM_UNDO)], None);
        Claim::MustWhileThere(take.is_ok() && give.is_ok())
    }),
    ("GETNCNT", |s, a| {
        let _ = a.engine.getncnt(a.t, s.id.get(), 0);
        Claim::Nothing
    }),
    ("IPC_STAT", |s, a| {
        let _ = a.engine.stat(a.t, s.id.get());
        Claim::Nothing
    }),
    ("list of sleepers", |s, a| {
        let _ = a.engine.for_each_sleeper(a.t, s.id.get(), &mut |_, _| {});
        Claim::Nothing
    }),
    ("semget, known key", |s, a| {
        let got = a.engine.semget(a.t, NEIGHBOUR_KEY, 0, 0);
        Claim::MustWhileThere(got == Ok(s.neighbour) || got == Err(s.unless_ended(Errno::EIO)))
    }),
    ("IPC_SET, as it is", |s, a| {
        if let Ok(now) = a.engine.stat(a.t, s.id.get()) {
            let _ = a.engine.set_perm(a.t, s.id.get(), now.uid, now.gid, now.mode);
        }
        Claim::Nothing
    }),
    ("reap", |_, a| {
        a.engine.reap(a.t, None);
        Claim::Nothing
    }),
];

const TAKE_AND_GIVE: Kind = ("take and give", |s, a| {
    if a.engine.semop(a.t, s.id.get(), &[op(0, -1, IPC_NOWAIT)], None).is_ok() {
        return Claim::Must(a.engine.semop(a.t, s.id.get(), &[op(0, 1, 0)], None).is_ok());
    }
    Claim::Nothing
});
const GIVE_AND_TAKE: Kind = ("give and take", |s, a| {
    if a.engine.semop(a.t, s.id.get(), &[op(0, 1, 0)], None).is_ok() {
        return Claim::Must(a.engine.semop(a.t, s.id.get(), &[op(0, -1, IPC_NOWAIT)], None).is_ok());
    }
    Claim::Nothing
});

fn the_kind(n: usize, touches: Touches) -> Kind {
    let n = n % (KINDS.len() + 1);
    match (KINDS.get(n), touches) {
        (Some(kind), _) => *kind,
        (None, Touches::TakeAndGive) => TAKE_AND_GIVE,
        (None, Touches::GiveAndTake) => GIVE_AND_TAKE,
        (None, Touches::Nothing) => KINDS[0],
    }
}

/// How many kinds there are.
pub fn kinds() -> usize {
    KINDS.len() + 1
}

/// The name of the `n`th kind.
pub fn kind(n: usize, touches: Touches) -> &'static str {
    the_kind(n, touches).0
}

/// Makes a call of the `n`th kind of those that change nothing on the way either, which therefore may be cut.
pub fn cuttable(stage: &Stage, actor: &Actor, n: usize) {
    (KINDS[n % KINDS.len()].1)(stage, actor);
}

/// Makes the `n`th kind of call.
pub fn call(stage: &Stage, actor: &Actor, n: usize, touches: Touches) -> Told {
    let (kind, call) = the_kind(n, touches);
    Told { kind, claim: call(stage, actor) }
}

impl Told {
    /// What it was told is what the arena means now: no undo was missing, no half of anything was seen.
    pub fn agrees(&self, stage: &Stage, meaning: &Meaning) -> Result<(), String> {
        let values = meaning.sets.get(&stage.id.get()).map(|s| &s.values);
        let gone = |e: &Errno| values.is_none() && matches!(*e, Errno::EINVAL | Errno::EIDRM);
        let agrees = match &self.claim {
            Claim::Nothing => true,
            Claim::Must(so) => *so,
            Claim::MustWhileThere(so) => *so || !meaning.sets.contains_key(&stage.neighbour),
            Claim::Value(Ok(v)) => values.is_some_and(|all| i32::from(all[0]) == *v),
            // It may have come before the undo of one whose death nobody has reported.
            Claim::Zero(Ok(())) => true,
            Claim::Zero(Err(Errno::EAGAIN)) => values.is_some_and(|all| all[0] != 0),
            Claim::Values(Ok(told)) => values.is_some_and(|all| all == told),
            Claim::Value(Err(e)) | Claim::Zero(Err(e)) | Claim::Values(Err(e)) => gone(e),
        };
        if agrees {
            return Ok(());
        }
        let said = match &self.claim {
            Claim::Value(r) => format!("{r:?}"),
            Claim::Zero(r) => format!("{r:?}"),
            Claim::Values(r) => format!("{r:?}"),
            Claim::Must(_) | Claim::MustWhileThere(_) | Claim::Nothing => "something else than it must".to_owned(),
        };
        Err(format!("{} was told {said}, and the values are {values:?}", self.kind))
    }
}
