//! What was taken, as a value.

use super::error::Error;
use super::semaphore::Semaphore;

/// So much of a semaphore, given back when this is dropped, when the process ends, or when it is killed: [`Semaphore::acquire`].
///
/// It may be sent to and dropped in another thread. A fork's child has a copy that gives nothing back: what was taken is the parent's.
#[derive(Debug)]
#[must_use = "a permit that is not kept is given back at once"]
pub struct Permit {
    semaphore: Semaphore,
    amount: u16,
    /// The process it belongs to.
    epoch: u64,
}

impl Permit {
    #[inline]
    pub(super) fn new(semaphore: Semaphore, amount: u16) -> Permit {
        Permit { semaphore: semaphore.with_undo(), amount, epoch: semaphore.set().engine().epoch() }
    }
    /// How much it is.
    pub fn amount(&self) -> u16 {
        self.amount
    }
    /// The semaphore.
    pub fn semaphore(&self) -> Semaphore {
        self.semaphore
    }
    /// Gives it back now, and says whether that went well, which dropping does not.
    ///
    /// # Errors
    /// [`Error::Removed`] when the semaphore is no more; [`Error::Overflow`] when others have added so much that there is no room.
    pub fn release(mut self) -> Result<(), Error> {
        self.give_back()
    }
    /// Keeps what was taken until the process ends, which gives it back.
    pub fn forget(mut self) {
        self.amount = 0;
    }

    #[inline]
    fn give_back(&mut self) -> Result<(), Error> {
        match std::mem::take(&mut self.amount) {
            0 => Ok(()),
            _ if self.semaphore.set().engine().epoch() != self.epoch => Ok(()),
            amount => self.semaphore.add(amount),
        }
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        // What fails here (the set was removed) leaves nothing to give back to.
        let _ = self.give_back();
    }
}
