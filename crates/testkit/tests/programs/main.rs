//! Programs that nobody here wrote, unmodified, on Manyway's semaphores. Each case checks that the program passes, that the namespace counted
//! its operations, and that the kernel's semaphores stayed untouched.
//!
//! What needs an absent program is reported as ignored, with the package that has it. Environment:
//! - `MANYWAY_REQUIRE_ALL=1`: an absent program is a failure.
//! - `MANYWAY_TEST_ON_KERNEL=1`: the same cases on the kernel's semaphores, to tell a fault of a case from a fault of Manyway.

mod apache;
mod case;
mod debian;
mod perl;
mod php;
mod python;
mod signals;
mod source;
mod space;
mod stress;

use libtest_mimic::{Arguments, Trial, run};

fn main() {
    let args = Arguments::from_args();
    space::own_user_namespace();
    let trials: Vec<Trial> =
        [perl::cases(), python::cases(), php::cases(), apache::cases(), stress::cases(), debian::cases(), signals::cases()]
            .into_iter()
            .flatten()
            .collect();
    run(&args, trials).exit();
}
