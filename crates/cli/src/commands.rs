//! One file per subcommand.

mod bench;
mod completions;
mod devel;
mod doctor;
mod env;
mod ls;
mod man;
mod ns;
mod rm;
mod run;
mod show;

use crate::args::Command;
use crate::exit::Result;

/// Carries out a command.
pub fn dispatch(command: &Command) -> Result<()> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Show(args) => show::run(args),
        Command::Rm(args) => rm::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Ns(args) => ns::run(args),
        Command::Env(args) => env::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Devel(args) => devel::run(args),
        Command::Man(args) => man::run(args),
    }
}
