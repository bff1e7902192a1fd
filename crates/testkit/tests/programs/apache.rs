//! Apache httpd, prefork, with System V semaphores for all its mutexes, under load from several clients, restarted gracefully meanwhile.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::case::{Absent, Outcome, case, expect, number_after, program};
use crate::space::{Space, output};

const MODULES: &str = "/usr/lib/apache2/modules";
const REQUESTS: u64 = 2000;
const PATIENCE: Duration = Duration::from_secs(30);

pub fn cases() -> Vec<Trial> {
    vec![case("apache_prefork_mutex_sysvsem", programs(), serve)]
}

struct Programs {
    apache: PathBuf,
    ab: PathBuf,
}

fn programs() -> Result<Programs, Absent> {
    let programs = Programs { apache: program("apache2", "apache2-bin")?, ab: program("ab", "apache2-utils")? };
    match Path::new(MODULES).is_dir() {
        true => Ok(programs),
        false => Err(Absent { package: "Debian's apache2-bin".into(), why: format!("there is no {MODULES}") }),
    }
}

fn serve(programs: Programs, space: &Space) -> Outcome<u64> {
    let site = Site::new()?;
    let apache = || {
        let mut command = space.command(&programs.apache);
        command.arg("-f").arg(site.file("httpd.conf"));
        command
    };

    let said = output(apache().args(["-t", "-D", "DUMP_RUN_CFG"]))?;
    expect(said.contains("Mutex default:") && said.contains("mechanism=sysvsem"), "the mutexes are no System V semaphores", &said)?;

    let mut server = Server(apache().arg("-DFOREGROUND").spawn()?);
    site.wait_for("the start", |log, _| log.matches("resuming normal operations").count() == 1)?;
    // One orders the children's accept calls, one their questions to the rewriting program.
    let sets = space.sets()?;
    if sets != 2 {
        return Err(format!("{sets} sets instead of 2").into());
    }

    let load = |path: &str, port: u16, word: &str| -> Outcome {
        let address = format!("http://127.0.0.1:{port}/{path}{word}");
        let mut ab = Command::new(&programs.ab);
        let said = output(ab.args(["-q", "-c", "8", "-n", &REQUESTS.to_string(), &address]))?;
        // ab compares the lengths of all answers with the first one's: an answer to the other client's question is a failed one.
        let good = number_after(&said, "Complete requests")? == REQUESTS
            && number_after(&said, "Failed requests")? == 0
            && number_after(&said, "Document Length")? == word.len() as u64
            && !said.contains("Non-2xx");
        expect(good, "not all requests were answered rightly", &said)
    };
    // Two clients at a time, at both ports.
    let clients = |path: &'static str, meanwhile: &dyn Fn() -> Outcome| -> Outcome {
        thread::scope(|scope| {
            let load = &load;
            let running =
                [("one", site.ports[0]), ("eleven", site.ports[1])].map(|(word, port)| scope.spawn(move || load(path, port, word)));
            meanwhile()?;
            running.into_iter().try_for_each(|client| client.join().expect("a client's thread"))
        })
    };
    clients("echo/", &|| Ok(()))?;
    // The rewriting program does not survive a restart, so it is left out here.
    clients("plain/", &|| {
        site.wait_for("half of the answers", |_, served| served as u64 > 3 * REQUESTS)?;
        kill(site.server()?, Signal::SIGUSR1)?;
        site.wait_for("the graceful restart", |log, _| log.matches("resuming normal operations").count() == 2)
    })?;
    clients("echo/", &|| Ok(()))?;

    kill(site.server()?, Signal::SIGWINCH)?;
    let status = server.end()?;
    let log = site.log()?;
    expect(status.success(), &format!("the server ended with {status}"), &log)?;
    let serious = ["emerg", "alert", "crit", "error"].iter().any(|level| log.contains(&format!(":{level}]")));
    expect(!serious, "errors in the server's log", &log)?;
    expect(space.sets()? == 0, "the server has left semaphores behind", &log)?;
    // Taking and giving back the mutex of accept for each request, and the other's for two thirds of them.
    Ok(2 * (6 + 4) * REQUESTS)
}

/// A server's files and ports.
struct Site {
    dir: tempfile::TempDir,
    ports: [u16; 2],
}

impl Site {
    fn new() -> Outcome<Site> {
        let dir = tempfile::TempDir::new()?;
        // Started by root, the server answers as another user, who reads the pages.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        // Two listening sockets: with one the children need no mutex to accept.
        let sockets = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
        let ports = [sockets[0].local_addr()?.port(), sockets[1].local_addr()?.port()];
        let site = Site { dir, ports };
        fs::write(site.file("httpd.conf"), site.configuration())?;
        fs::write(site.file("echo.sh"), "#!/bin/sh\nwhile read -r word; do echo \"$word\"; done\n")?;
        fs::set_permissions(site.file("echo.sh"), fs::Permissions::from_mode(0o755))?;
        fs::create_dir_all(site.file("pages/plain"))?;
        for word in ["one", "eleven"] {
            fs::write(site.file("pages/plain").join(word), word)?;
        }
        Ok(site)
    }

    fn configuration(&self) -> String {
        let dir = self.dir.path().display();
        let mut text = String::new();
        for module in ["mpm_prefork", "authz_core", "rewrite"] {
            writeln!(text, "LoadModule {module}_module {MODULES}/mod_{module}.so").expect("a string takes all");
        }
        for port in self.ports {
            writeln!(text, "Listen 127.0.0.1:{port}").expect("a string takes all");
        }
        // The spare servers and the requests per child make children come and go all the time.
        text + &format!(
            "
ServerName 127.0.0.1
ServerRoot {dir}
DefaultRuntimeDir {dir}
PidFile {dir}/pid
ErrorLog {dir}/errors
CustomLog {dir}/requests %U
Mutex sysvsem default
User www-data
Group www-data
StartServers 4
MinSpareServers 2
MaxSpareServers 6
MaxRequestWorkers 24
MaxConnectionsPerChild 500
KeepAlive Off
DocumentRoot {dir}/pages
RewriteEngine On
RewriteMap echo prg:{dir}/echo.sh
RewriteRule ^/echo/(.+)$ /plain/${{echo:$1}}
"
        )
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn server(&self) -> Outcome<Pid> {
        Ok(Pid::from_raw(fs::read_to_string(self.file("pid"))?.trim().parse()?))
    }

    fn log(&self) -> Outcome<String> {
        Ok(fs::read_to_string(self.file("errors"))?)
    }

    /// Waits until the error log and the number of requests served are as `done` wants.
    fn wait_for(&self, what: &str, done: impl Fn(&str, usize) -> bool) -> Outcome {
        let began = Instant::now();
        loop {
            let log = self.log().unwrap_or_default();
            let served = fs::read_to_string(self.file("requests")).unwrap_or_default().lines().count();
            if done(&log, served) {
                return Ok(());
            }
            expect(began.elapsed() < PATIENCE, &format!("{what} did not come in {PATIENCE:?}"), &log)?;
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A running server, stopped at the latest when this goes.
struct Server(Child);

impl Server {
    fn end(&mut self) -> Outcome<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(format!("the server did not stop in {PATIENCE:?}").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // `timeout`, which runs the server, hands the signal on. That it may be gone already is no matter.
            let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}
