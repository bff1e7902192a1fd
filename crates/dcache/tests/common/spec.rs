//! The reference as what histories are judged by: calls that name directories by number, and their answers.

use super::fs::{Flags, Fs, How, Ino, Make, No};
use super::history::Spec;
use super::program::Path;

/// One call of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Walk(Ino, Path, Flags),
    Create(Ino, Path, Make),
    Link(Ino, Ino, Path),
    Unlink(Ino, Path),
    Rmdir(Ino, Path),
    Rename((Ino, Path), (Ino, Path), How),
    /// A name is taken away beside the cache, and then invalidated.
    UnlinkAside(Ino, Path),
    /// A name is made beside the cache, and then invalidated.
    CreateAside(Ino, Path, Make),
    /// What changes no answer: names are forgotten, room is made.
    Invalidate(Ino, Path),
    InvalidateSubtree(Ino),
    /// A listing is the store's, and shows what is not committed yet; but it leaves names in the cache, and a directory that is complete.
    List(Ino),
}

/// What it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Ino(Result<Ino, No>),
    Done(Result<(), No>),
}

impl Spec for Fs {
    type Call = Call;
    type Answer = Answer;

    fn answers(&mut self, call: &Call, seen: &Answer) -> bool {
        if is_refusal(call, seen) {
            return true;
        }
        let own = match call {
            Call::Walk(start, path, flags) => Answer::Ino(self.walk(*start, &path.0, *flags)),
            Call::Create(dir, name, make) => {
                let ino = if let Answer::Ino(Ok(ino)) = seen { *ino } else { self.next() };
                Answer::Ino(self.create_as(*dir, &name.0, make.clone(), ino))
            }
            Call::CreateAside(dir, name, make) => {
                let ino = if let Answer::Ino(Ok(ino)) = seen { *ino } else { self.next() };
                Answer::Ino(self.create_as(*dir, &name.0, make.clone(), ino))
            }
            Call::Link(ino, dir, name) => Answer::Done(self.link(*ino, *dir, &name.0)),
            Call::Unlink(dir, name) | Call::UnlinkAside(dir, name) => Answer::Done(self.unlink(*dir, &name.0)),
            Call::Rmdir(dir, name) => Answer::Done(self.rmdir(*dir, &name.0)),
            Call::Rename(from, to, how) => Answer::Done(self.rename((from.0, &from.1.0), (to.0, &to.1.0), *how)),
            Call::Invalidate(..) | Call::InvalidateSubtree(_) | Call::List(_) => Answer::Done(Ok(())),
        };
        own == *seen
    }
}

/// A change that the store has refused changes nothing. Why it did may be a change of other names that walks do not see yet (a directory that
/// is not empty): that is not judged. That a name exists is.
fn is_refusal(call: &Call, seen: &Answer) -> bool {
    match (call, seen) {
        (Call::Walk(..), _) => false,
        (Call::Create(..) | Call::Link(..), Answer::Ino(Err(No::Exists)) | Answer::Done(Err(No::Exists))) => false,
        (_, Answer::Ino(Err(_)) | Answer::Done(Err(_))) => true,
        _ => false,
    }
}
