//! `manyway env`: the variables that `run` sets, for those who start programs in another way.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use super::run::open;
use crate::args::{Env, EnvFormat};
use crate::dirs;
use crate::exit::{Failure, Result};
use crate::library::{self, PRELOAD_VARIABLE};
use crate::namespace::{DIR_VARIABLE, Intent, OWNER_VARIABLE, Place};
use crate::output::print;

/// A variable, and its value.
type Variable = (&'static str, String);

/// What `--format json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    namespace: &'a Path,
    library: &'a Path,
    env: serde_json::Map<String, serde_json::Value>,
}

pub fn run(args: &Env) -> Result<()> {
    let library = library::install()?;
    let place = Place::find(&args.namespace, Intent::Make, args.settings.share)?;
    let (place, owner) = open(&place, &args.settings.options())?;
    let text = |value: OsString| value.into_string().map_err(|value| Failure::new(format!("{} is not text", value.display())));
    let mut variables = vec![(PRELOAD_VARIABLE, text(library.clone().into())?), (DIR_VARIABLE, text(place.dir.clone().into())?)];
    variables.extend(owner.map(|owner| (OWNER_VARIABLE, owner.to_string())));
    print(&match args.format {
        EnvFormat::Sh => shell(&variables),
        EnvFormat::Systemd => systemd(&variables)?,
        EnvFormat::Docker => docker(&variables, &library, &place.dir)?,
        EnvFormat::Json => {
            let env = variables.iter().map(|(name, value)| ((*name).into(), value.as_str().into())).collect();
            let answer = Answer { namespace: &place.dir, library: &library, env };
            serde_json::to_string_pretty(&answer).map_err(|e| Failure::io("cannot write JSON", e))? + "\n"
        }
    })
}

/// Commands of a shell. Libraries that are preloaded already stay behind ours.
fn shell(variables: &[Variable]) -> String {
    let quoted = |value: &str| format!("'{}'", value.replace('\'', "'\\''"));
    let line = |(name, value): &Variable| match *name {
        PRELOAD_VARIABLE => format!("export {name}={}${{{name}:+:${name}}}\n", quoted(value)),
        _ => format!("export {name}={}\n", quoted(value)),
    };
    let mut text: String = variables.iter().map(line).collect();
    if !variables.iter().any(|(name, _)| *name == OWNER_VARIABLE) {
        text.push_str(&format!("unset {OWNER_VARIABLE}\n"));
    }
    text
}

/// A drop-in. Namespace and library are in memory: after a reboot they are made anew before the service starts.
fn systemd(variables: &[Variable]) -> Result<String> {
    let exe = std::env::current_exe().map_err(|e| Failure::io("cannot find this program's file", e))?;
    // Quotes, backslashes and percent signs mean something there.
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"));
    let dir = variables.iter().find(|(name, _)| *name == DIR_VARIABLE).map_or("", |(_, value)| value);
    let mut text = String::from("# Simpler, with a watcher: ExecStart=manyway run ... -- PROGRAM\n[Service]\n");
    text.push_str(&format!("ExecStartPre={} env --dir {} --format json\n", quoted(&exe.to_string_lossy()), quoted(dir)));
    for (name, value) in variables {
        text.push_str(&format!("Environment={}\n", quoted(&format!("{name}={value}"))));
    }
    Ok(text)
}

/// Options, to be split at spaces. The container must see the processes that the arena names, and so be in their PID namespace.
fn docker(variables: &[Variable], library: &Path, dir: &Path) -> Result<String> {
    for path in [library, dir] {
        dirs::check_separators(path)
            .map_err(|unfit| Failure::new(unfit.to_string()).advise("Choose a directory without spaces and colons."))?;
    }
    let meta = dir.metadata().map_err(|e| Failure::io(dir.display(), e))?;
    let mut words = vec![format!("--pid=host --user={}:{}", meta.uid(), meta.gid())];
    words.push(format!("--volume={0}:{0}:ro --volume={1}:{1}", library.display(), dir.display()));
    words.extend(variables.iter().map(|(name, value)| format!("--env={name}={value}")));
    Ok(words.join(" ") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(dir: &str) -> Vec<Variable> {
        vec![(PRELOAD_VARIABLE, "/l.so".into()), (DIR_VARIABLE, dir.into())]
    }

    #[test]
    fn quoting() {
        let text = shell(&variables("/a'b c"));
        assert_eq!(text, "export LD_PRELOAD='/l.so'${LD_PRELOAD:+:$LD_PRELOAD}\nexport MANYWAY_DIR='/a'\\''b c'\nunset MANYWAY_OWNER\n");
        let text = systemd(&variables("/a\"b\\c%d")).unwrap();
        assert!(text.contains(r#"Environment="MANYWAY_DIR=/a\"b\\c%%d""#), "{text}");
        docker(&variables("/a b"), Path::new("/l.so"), Path::new("/a b")).unwrap_err();
    }
}
