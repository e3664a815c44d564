//! A service's process from outside: exit codes, output and signals.
//!
//! Cargo starts this program, which runs the checks. Each check starts it again as a service, with arguments and
//! environment of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use service_kit::process;

const CHILD: &str = "SERVICE_KIT_TEST_SERVICE";
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    if let Ok(behaviour) = env::var(CHILD) {
        return service(behaviour);
    }
    let checks: [(&str, fn()); 11] = [
        ("help_and_version_need_no_settings", help_and_version_need_no_settings),
        ("other_arguments_are_refused", other_arguments_are_refused),
        ("unusable_settings_end_it_with_2", unusable_settings_end_it_with_2),
        ("an_unreadable_file_is_named_with_the_cause", an_unreadable_file_is_named_with_the_cause),
        ("a_failure_is_shown_in_one_line", a_failure_is_shown_in_one_line),
        ("a_panic_ends_it", a_panic_ends_it),
        ("either_signal_ends_it_well", either_signal_ends_it_well),
        ("a_second_signal_ends_it_immediately", a_second_signal_ends_it_immediately),
        ("an_overdue_service_is_abandoned", an_overdue_service_is_abandoned),
        ("json_logs_are_json", json_logs_are_json),
        ("output_that_nobody_reads_changes_nothing", output_that_nobody_reads_changes_nothing),
    ];
    for (name, check) in checks {
        check();
        println!("process::{name} ... ok");
    }
    ExitCode::SUCCESS
}

#[derive(Debug, thiserror::Error)]
#[error("cannot begin")]
struct CannotBegin(#[source] std::io::Error);

fn service(behaviour: String) -> ExitCode {
    process::run(
        "service",
        "does as it is told",
        async move |settings, shutdown| -> Result<(), Box<dyn Error + Send + Sync>> {
            tracing::info!(connections = settings.database.max_connections, "begun");
            println!("begun");
            match behaviour.as_str() {
                "fail" => return Err(CannotBegin(std::io::Error::other("no luck")).into()),
                "panic" => panic!("out of order"),
                "obey" => shutdown.cancelled().await,
                "linger" => {
                    shutdown.cancelled().await;
                    println!("lingering");
                    std::future::pending::<()>().await;
                }
                _ => {}
            }
            Ok(())
        },
    )
}

fn command(behaviour: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(arguments).env_clear().env(CHILD, behaviour);
    command.env("WEBHOOKS__DATABASE__URL", "postgres://hunter2").env("WEBHOOKS__BROKER__URL", "amqp://hunter2");
    command.envs(environment.iter().copied());
    command
}

struct Service {
    process: Child,
    output: BufReader<ChildStdout>,
}

struct Ended {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Service {
    fn start(behaviour: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = command(behaviour, arguments, environment);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    fn expect(&mut self, line: &str) {
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        assert_eq!(said.trim_end(), line);
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.process.id())]).status().unwrap();
        assert!(sent.success());
    }

    fn end(mut self) -> Ended {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > EXIT_TIMEOUT {
                self.process.kill().unwrap();
            }
            #[expect(clippy::disallowed_methods, reason = "the test has no runtime, and the harness no other wait")]
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output).unwrap();
        if let Some(mut stderr) = self.process.stderr.take() {
            stderr.read_to_string(&mut errors).unwrap();
        }
        Ended { code: status.code(), output, errors }
    }
}

fn help_and_version_need_no_settings() {
    let unusable = [("WEBHOOKS__NONSENSE", "1")];
    let help = Service::start("obey", &["--help"], &unusable).end();
    assert_eq!(help.code, Some(0));
    assert!(help.output.starts_with("service: does as it is told\n"), "{}", help.output);
    assert!(help.output.contains("WEBHOOKS__SECTION__KEY"), "{}", help.output);
    let version = Service::start("obey", &["--version"], &unusable).end();
    assert_eq!((version.code, version.output), (Some(0), format!("service {}\n", env!("CARGO_PKG_VERSION"))));
}

fn other_arguments_are_refused() {
    for arguments in [&["--verbose"][..], &["serve"], &["--help", "me"], &[""]] {
        let ended = Service::start("obey", arguments, &[]).end();
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert_eq!(ended.errors, "service: takes no arguments but --help and --version\n");
    }
}

fn unusable_settings_end_it_with_2() {
    for (name, value, said) in [
        ("WEBHOOKS__INGEST__BATHC", "1", "ingest.bathc (WEBHOOKS__INGEST__BATHC): unknown; known here: batch"),
        ("WEBHOOKS__DATABASE__URL", "", "database.url (WEBHOOKS__DATABASE__URL): must not be empty"),
        ("WEBHOOKS__LOG__LEVEL", "inffo", "log.level (WEBHOOKS__LOG__LEVEL): invalid level \"inffo\": "),
    ] {
        let ended = Service::start("obey", &[], &[(name, value)]).end();
        assert_eq!(ended.code, Some(2), "{name}");
        assert!(ended.errors.starts_with(&format!("service: {said}")), "{}", ended.errors);
        assert_eq!(ended.output, "", "not begun");
    }
}

fn an_unreadable_file_is_named_with_the_cause() {
    let ended = Service::start("obey", &[], &[("WEBHOOKS_CONFIG", "/nowhere/at/all.toml")]).end();
    assert_eq!(ended.code, Some(2));
    let beginning = "service: settings file /nowhere/at/all.toml (WEBHOOKS_CONFIG) cannot be read: No such file";
    assert!(ended.errors.starts_with(beginning), "{}", ended.errors);
}

fn a_failure_is_shown_in_one_line() {
    let ended = Service::start("fail", &[], &[("WEBHOOKS__LOG__LEVEL", "off")]).end();
    assert_eq!((ended.code, ended.errors.as_str()), (Some(1), "service: cannot begin: no luck\n"));
}

fn a_panic_ends_it() {
    let ended = Service::start("panic", &[], &[]).end();
    assert_eq!(ended.code, Some(101));
    assert!(ended.errors.contains("out of order"), "{}", ended.errors);
}

fn either_signal_ends_it_well() {
    for signal in ["TERM", "INT"] {
        let mut service = Service::start("obey", &[], &[]);
        service.expect("begun");
        service.signal(signal);
        let ended = service.end();
        assert_eq!(ended.code, Some(0), "{}", ended.errors);
        assert!(ended.errors.contains("shutting down") && ended.errors.contains(signal), "{}", ended.errors);
    }
}

fn a_second_signal_ends_it_immediately() {
    let mut service = Service::start("linger", &[], &[]);
    service.expect("begun");
    service.signal("TERM");
    service.expect("lingering");
    service.signal("INT");
    assert_eq!(service.end().code, Some(130));
}

fn an_overdue_service_is_abandoned() {
    let settings = [("WEBHOOKS__SHUTDOWN__DEADLINE", "10ms"), ("WEBHOOKS__LOG__LEVEL", "off")];
    let mut service = Service::start("linger", &[], &settings);
    service.expect("begun");
    service.signal("TERM");
    let ended = service.end();
    let said = "service: still busy after shutdown.deadline (WEBHOOKS__SHUTDOWN__DEADLINE), 10ms\n";
    assert_eq!((ended.code, ended.errors.as_str()), (Some(1), said));
}

fn json_logs_are_json() {
    let ended = Service::start("end", &[], &[("WEBHOOKS__LOG__FORMAT", "json")]).end();
    assert_eq!(ended.code, Some(0));
    let line: serde_json::Value = serde_json::from_str(ended.errors.trim_end()).expect(&ended.errors);
    assert_eq!((&line["level"], &line["message"], &line["connections"]), (&"INFO".into(), &"begun".into(), &8.into()));
}

fn output_that_nobody_reads_changes_nothing() {
    let mut service = Service::start("obey", &[], &[]);
    service.expect("begun");
    drop(service.process.stderr.take());
    service.signal("TERM");
    assert_eq!(service.end().code, Some(0));
    let unread = || {
        let (_, writer) = std::io::pipe().unwrap();
        Stdio::from(writer)
    };
    assert_eq!(command("obey", &["--help"], &[]).stdout(unread()).status().unwrap().code(), Some(0));
    for (behaviour, arguments, code) in [("obey", &["--verbose"][..], 2), ("fail", &[][..], 1)] {
        let mut command = command(behaviour, arguments, &[]);
        let status = command.stdout(Stdio::null()).stderr(unread()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{behaviour} {arguments:?}");
    }
}
