//! The program that registers a webhook and replaces its secret (`proto-schemas/clients/provision.py`), killed at each of
//! its lines, against the real service and a receiver that verifies with the secrets of the program's file.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    further_api::FurtherApi,
    proxy::{Mode, Reserved},
    receiver::{Received, Receiver, Reply, behaviour, verify},
    system::{System, TestSystem},
    tools::Tool,
    wait::SOON,
};
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::samples::{Folder, libraries};

/// Runs the program in forks, as its imports take longer than a run. A place is the lines of the program on the call stack.
/// A fork kills itself at the place `kill`, or writes each place that it reaches for the first time to the file `places`.
const FORKS: &str = r#"
import fcntl, http.client, json, os, signal, sys, time, urllib.request, uuid

def tracer(script, job):
    seen = set()
    def trace(frame, event, _):
        if frame.f_code.co_filename != script:
            return None
        lines, caller = [], frame
        while caller:
            lines[:0] = [str(caller.f_lineno)] if caller.f_code.co_filename == script else []
            caller = caller.f_back
        place = "-".join(lines)
        if event == "line" and place not in seen:
            seen.add(place)
            if place == job.get("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if "places" in job:
                os.write(places, f"{place}\n".encode())
        return trace
    if "places" in job:
        places = os.open(job["places"], os.O_WRONLY | os.O_CREAT)
    return trace

def run(job):
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(job["variables"])
    script = job["script"]
    sys.argv = [script, job["command"]]
    code = compile(open(script, encoding="utf-8").read(), script, "exec")
    if "kill" in job or "places" in job:
        sys.settrace(tracer(script, job))
    exec(code, {"__name__": "__main__"})
    sys.settrace(None)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(json.loads(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"#;

/// The exit code of a fork that killed itself.
const KILLED: i32 = -9;

/// An interpreter that runs the program in forks.
struct Interpreter {
    child: Child,
    codes: Lines<BufReader<ChildStdout>>,
}

impl Interpreter {
    fn start() -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", FORKS]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = python.spawn().unwrap();
        let codes = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, codes }
    }

    /// Runs the program. Returns its exit code.
    async fn run(&mut self, of: &Installation, command: &str, more: (&str, &str)) -> i32 {
        let variables: serde_json::Map<_, _> =
            of.variables.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let job = json!({
            "script": of.script, "command": command, "variables": variables, "log": of.folder.join("log"), more.0: more.1,
        });
        self.child.stdin.as_mut().unwrap().write_all(format!("{job}\n").as_bytes()).await.unwrap();
        let code = timeout(SOON, self.codes.next_line()).await.expect("the run ends").unwrap();
        code.expect("the interpreter runs").parse().unwrap()
    }
}

/// What there is before the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Nothing,
    /// The answer of the registration was lost.
    LostAnswer,
    Registered,
    /// The answer of the second registration was lost.
    LostReplacement,
}

impl Start {
    const fn command(self) -> &'static str {
        match self {
            Self::Nothing | Self::LostAnswer => "register",
            Self::Registered | Self::LostReplacement => "replace-secret",
        }
    }
}

/// A tenant with the program's variables.
struct Installation {
    admin: Api,
    tenant: Uuid,
    script: PathBuf,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    /// The secret that is to be replaced.
    old: Option<String>,
}

const NAME: &str = "erp";

impl Installation {
    async fn new(system: &System, program: &Program, start: Start) -> Self {
        let ((tenant, admin), id) = (system.tenant().await, Uuid::new_v4().to_string());
        let folder = program.folder.0.join(&id);
        fs::create_dir(&folder).unwrap();
        let key = admin.post("/api/v1/keys/", &json!({"name": NAME})).await.json();
        let variables = [
            ("BASE_URL", format!("http://{}/api/v1", admin.address)),
            ("KEY", key["key"].as_str().unwrap().to_owned()),
            ("URL", program.receiver.url(&id)),
            ("EVENTS", "quote.closed,quote.accepted".to_owned()),
            ("NAME", NAME.to_owned()),
            ("SECRETS", folder.join(SECRETS).display().to_string()),
            ("OVERLAP", "0".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let script = program.folder.0.join("provision.py");
        let mut new = Self { admin, tenant, script, folder, variables, old: None };
        new.begin(start).await;
        new
    }

    /// Registers what there is before the program runs, and writes the program's file.
    async fn begin(&mut self, start: Start) {
        let mut webhooks = Vec::new();
        if start.command() == "replace-secret" {
            let (key, created) = self.register(NAME).await;
            self.old = Some(created["signing_secret"].as_str().unwrap().to_owned());
            webhooks.push(json!({"key": key, "id": created["id"], "signing_secret": created["signing_secret"]}));
        }
        match start {
            Start::LostAnswer => webhooks.push(json!({"key": self.register(NAME).await.0})),
            Start::LostReplacement => webhooks.push(json!({"key": self.register("erp.next").await.0})),
            Start::Nothing | Start::Registered => {}
        }
        if !webhooks.is_empty() {
            fs::write(self.folder.join(SECRETS), json!(webhooks).to_string()).unwrap();
        }
    }

    async fn register(&self, external_id: &str) -> (String, Value) {
        let url = self.variable("URL");
        let body = json!({"name": NAME, "url": url, "events": ["quote.closed"], "external_id": external_id});
        let key = Uuid::new_v4().to_string();
        let headers = [("content-type", "application/json"), ("idempotency-key", key.as_str())];
        let answer = self.admin.send("POST", "/api/v1/webhooks/", &headers, body.to_string()).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        (key, answer.json())
    }

    fn variable(&self, name: &str) -> &str {
        &self.variables.iter().find(|(have, _)| have == name).unwrap().1
    }

    fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(have, _)| have != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the program by itself.
    fn spawn(&self, command: &str) -> Child {
        let mut python = Command::new("python3");
        python.arg(&self.script).arg(command).envs(self.variables.iter().cloned());
        python.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    }

    /// Runs the program by itself. Returns its exit code, and what it says on both outputs.
    async fn run(&self, command: &str) -> (Option<i32>, String) {
        end(self.spawn(command)).await
    }

    /// Asserts that the tenant has exactly one webhook, whose secret is in the file and was tested.
    async fn assert_done(&self, program: &Program, what: &str) {
        let what = format!("{what}: {}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
        let (webhooks, file) = (self.admin.whole("/api/v1/webhooks/", "limit=10").await, self.folder.join(SECRETS));
        let [webhook] = &webhooks[..] else { panic!("{what}: {webhooks:#?}") };
        assert_eq!((&webhook["external_id"], &webhook["is_active"]), (&json!(NAME), &json!(true)), "{what}");
        assert_eq!(webhook["events"], json!(["quote.closed", "quote.accepted"]), "{what}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{what}");
        let text = fs::read_to_string(&file).unwrap();
        let saved: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((saved.as_array().unwrap().len(), &saved[0]["id"]), (1, &webhook["id"]), "{what}: {text}");
        let secret = saved[0]["signing_secret"].as_str().unwrap();
        assert_ne!(Some(secret), self.old.as_deref(), "{what}");
        let arrived = program.receiver.received();
        let (path, mut arrived) = (self.path(), arrived.iter().filter(|request| request.path == self.path()));
        let is_test = |request: &&Received| request.header("x-service-test") == Some("true");
        assert!(arrived.any(|request| is_test(&request) && verify(request, secret).is_ok()), "{what}: {path}");
    }

    fn path(&self) -> String {
        format!("/{}", self.folder.file_name().unwrap().to_str().unwrap())
    }
}

/// Waits for the end of a program. Returns its exit code, and what it says on both outputs.
async fn end(child: Child) -> (Option<i32>, String) {
    let output = timeout(SOON, child.wait_with_output()).await.expect("the program ends").unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.code(), said)
}

/// The name of the program's file in an installation's folder.
const SECRETS: &str = "secrets.json";

/// The program, in a folder with a folder for each installation, and the receiver of all.
struct Program {
    folder: Folder,
    receiver: Receiver,
}

impl Program {
    fn new(system: &System) -> Arc<Self> {
        let folder = Folder::below(&libraries(), &["clients/provision.py"]);
        let files = folder.0.clone();
        let status = move |request: &Received| if is_accepted(&files, request) { 200 } else { 400 };
        let receiver = Receiver::start(&system.ca, behaviour(move |request, _| Reply::status(status(request))));
        Arc::new(Self { folder, receiver })
    }
}

/// Verifies a delivery with each secret of the file in the folder that the path names.
fn is_accepted(folder: &Path, request: &Received) -> bool {
    let text = fs::read_to_string(folder.join(request.path.trim_start_matches('/')).join(SECRETS)).unwrap();
    let webhooks: Value = serde_json::from_str(&text).unwrap();
    let mut secrets = webhooks.as_array().unwrap().iter().filter_map(|webhook| webhook["signing_secret"].as_str());
    secrets.any(|secret| verify(request, secret).is_ok())
}

/// Lists the places at which to kill the program: each line once, and before and after each request of each call.
async fn places(system: &System, program: &Program, start: Start, python: &mut Interpreter) -> Vec<String> {
    let of = Installation::new(system, program, start).await;
    let list = of.folder.join("places");
    let code = python.run(&of, start.command(), ("places", &list.display().to_string())).await;
    of.assert_done(program, &format!("{start:?} without a kill")).await;
    assert_eq!(code, 0);
    let (source, mut lines) = (fs::read_to_string(&of.script).unwrap(), BTreeSet::new());
    let source: Vec<_> = source.lines().collect();
    let mut is_wanted = |place: &&str| {
        let line: usize = place.rsplit('-').next().unwrap().parse().unwrap();
        let is_request = ["api.open(", "answer.read("].iter().any(|part| source[line - 1].contains(part));
        lines.insert(line) || is_request
    };
    fs::read_to_string(list).unwrap().lines().filter(|place| is_wanted(place)).map(str::to_owned).collect()
}

/// Kills the program at a place, and runs it again without a kill. Returns whether it reached the place.
async fn kill_at(place: &str, (system, program, start): (&System, &Program, Start), python: &mut Interpreter) -> bool {
    let of = Installation::new(system, program, start).await;
    let code = python.run(&of, start.command(), ("kill", place)).await;
    let what = format!("{start:?} killed at {place}");
    assert!([0, KILLED].contains(&code), "{what}: {code}: {}", fs::read_to_string(of.folder.join("log")).unwrap());
    let code_again = python.run(&of, start.command(), ("kill", "nowhere")).await;
    of.assert_done(program, &what).await;
    assert_eq!(code_again, 0, "{what}");
    let refused = program.receiver.received().iter().filter(|one| one.path == of.path() && one.status != 200).count();
    assert_eq!(refused, 0, "{what}: the receiver always has each secret that is in use");
    code == KILLED
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_killed_at_any_line_ends_well_when_it_runs_again() {
    if !Tool::Python.is_used() {
        return;
    }
    let system = TestSystem::shared().await;
    let program = Program::new(&system);
    let mut lister = Interpreter::start();
    let mut all = Vec::new();
    for (start, lost) in [(Start::Nothing, Start::LostAnswer), (Start::Registered, Start::LostReplacement)] {
        let mut usual = places(&system, &program, start, &mut lister).await;
        let known: HashSet<_> = usual.iter().cloned().collect();
        // Lines outside of functions come before a command does anything: they are tried once.
        usual.retain(|place| start == Start::Nothing || place.contains('-'));
        let further = places(&system, &program, lost, &mut lister).await;
        all.extend(usual.into_iter().map(|place| (start, place)));
        all.extend(further.into_iter().filter(|place| !known.contains(place)).map(|place| (lost, place)));
    }
    let (count, queue) = (all.len(), Mutex::new(all.into_iter()));
    let workers = (0..4).map(async |_| {
        let (mut python, mut missed) = (Interpreter::start(), Vec::new());
        loop {
            let Some((start, place)) = queue.lock().next() else { return missed };
            if !kill_at(&place, (&system, &program, start), &mut python).await {
                missed.push((start, place));
            }
        }
    });
    let missed = join_all(workers).await.concat();
    // A test that succeeds before the first look needs no second one.
    println!("{count} kills, but for {missed:?}");
    assert!(count > 150 && missed.len() <= 20, "{count} kills, but for {missed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_answers_are_lost_registers_one_webhook() {
    if !Tool::Python.is_used() {
        return;
    }
    let system = TestSystem::shared().await;
    let program = Program::new(&system);
    let mut of = Installation::new(&system, &program, Start::Nothing).await;
    let proxy = Reserved::take().forward_to(of.admin.address);
    of.set("BASE_URL", &format!("http://{}/api/v1", proxy.address));
    proxy.set(Mode::EndAt("signing_secret"));
    let mut run = of.spawn("register");
    let mut said = BufReader::new(run.stdout.take().unwrap()).lines();
    said_line(&mut said, "trying again").await;
    proxy.set(Mode::Pass);
    said_line(&mut said, "as the answer with its secret was lost").await;
    said_line(&mut said, "done: ").await;
    assert_eq!(end(run).await, (Some(0), String::new()));
    of.assert_done(&program, "a lost answer").await;
}

/// Waits for a line that contains a text.
async fn said_line(said: &mut Lines<BufReader<ChildStdout>>, text: &str) {
    let wait = async {
        while !said.next_line().await.unwrap().unwrap_or_else(|| panic!("it never says {text:?}")).contains(text) {}
    };
    timeout(SOON, wait).await.unwrap_or_else(|_| panic!("it does not say {text:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_waits_until_the_old_webhook_has_delivered_its_events() {
    if !Tool::Python.is_used() {
        return;
    }
    let system = TestSystem::shared().await;
    let program = Program::new(&system);
    let of = Installation::new(&system, &program, Start::Registered).await;
    let old = of.admin.get("/api/v1/webhooks/").await.json()["data"][0]["id"].as_str().unwrap().to_owned();
    let (answer, folder) = (CancellationToken::new(), program.folder.0.clone());
    let held = answer.clone();
    program.receiver.behave(behaviour(move |request, _| match request.header("x-service-test") {
        _ if !is_accepted(&folder, request) => Reply::status(400),
        Some(_) => Reply::ok(),
        None => Reply::ok().once(&held),
    }));
    let event = Event::now(EventType::QuoteClosed, of.tenant);
    system.upstream.publish(&[event]).await;
    program.receiver.wait_for(1, SOON).await;

    for _ in 0..2 {
        let mut run = of.spawn("replace-secret");
        let mut said = BufReader::new(run.stdout.take().unwrap()).lines();
        said_line(&mut said, &format!("{old} has waiting deliveries")).await;
        run.kill().await.unwrap();
        assert_eq!(of.admin.whole("/api/v1/webhooks/", "limit=10").await.len(), 2);
    }
    answer.cancel();
    let (code, said) = of.run("replace-secret").await;
    assert_eq!(code, Some(0), "{said}");
    of.assert_done(&program, &said).await;
    let log = of.admin.log(&old, "state=succeeded").await;
    assert_eq!(log["data"].as_array().unwrap().len(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_shows_why_it_ends_and_goes_on_when_that_is_fixed() {
    if !Tool::Python.is_used() {
        return;
    }
    let system = TestSystem::shared().await;
    let program = Program::new(&system);
    let mut of = Installation::new(&system, &program, Start::Nothing).await;
    let (code, said) = of.run("replace-secret").await;
    assert!(code == Some(1) && said.contains("has no secret: register first"), "{said}");
    let key = of.variable("KEY").to_owned();
    of.set("KEY", "wk_unknown");
    let (code, said) = of.run("register").await;
    assert!(code == Some(1) && said.contains("unknown_key"), "{said}");
    of.set("KEY", &key);

    let (api, folder) = (limited(&system, &of.admin).await, program.folder.0.clone());
    of.set("BASE_URL", &format!("http://{}/api/v1", api.address));
    of.set("WAIT", "2");
    program.receiver.behave(behaviour(|_, _| Reply::status(401).body("no such secret")));
    let (code, said) = of.run("register").await;
    assert!(code == Some(1) && said.contains("401 Unauthorized no such secret"), "{said}");
    assert!(said.contains("Let the receiver accept each secret"), "{said}");
    assert!(said.contains("too_many_requests") && said.contains("trying again in 1 s"), "{said}");

    of.set("WAIT", "60");
    program
        .receiver
        .behave(behaviour(move |request, _| Reply::status(if is_accepted(&folder, request) { 200 } else { 400 })));
    let (code, said) = of.run("register").await;
    assert_eq!(code, Some(0), "{said}");
    of.assert_done(&program, &said).await;
}

/// Starts an API in which a key has five requests a second.
async fn limited(system: &System, admin: &Api) -> FurtherApi {
    FurtherApi::start(system, &[("API__RATE_LIMIT_PER_MINUTE", "600"), ("API__RATE_LIMIT_BURST", "2")], admin).await
}
