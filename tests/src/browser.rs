//! A real browser: Chromium through its driver, without a window.

use std::{net::SocketAddr, process::Stdio};

use fantoccini::{Client, ClientBuilder, Locator, elements::Element, wd::WebDriverCompatibleCommand};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};

use crate::{
    servers::repository,
    tools::Tool,
    wait::{SOON, eventually, eventually_ok},
};

/// Timers of the pages run ten times as fast: an open page is refreshed each half second.
const HURRY_SCRIPT: &str =
    "const timer = setTimeout; window.setTimeout = (call, delay, ...rest) => timer(call, delay / 10, ...rest);";

/// The driver, and one browser.
pub struct Browser {
    /// The client of the browser.
    pub page: Client,
    base: String,
    driver: tokio::process::Child,
}

/// How a browser differs from an ordinary one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// It runs no script.
    pub is_without_script: bool,
}

impl Browser {
    /// Starts a browser for the pages of a service. It can reach nothing else. `None` if `SKIP` leaves Chromium out.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(service: SocketAddr, kind: Kind) -> Option<Self> {
        if !Tool::Chromium.is_used() {
            return None;
        }
        let mut driver = tokio::process::Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver starts");
        let mut lines = BufReader::new(driver.stdout.take().expect("its output is read")).lines();
        let port = timeout(SOON, async {
            loop {
                let line = lines.next_line().await.expect("its output can be read").expect("it names its port");
                if let Some((_, port)) = line.split_once("started successfully on port ") {
                    return port.trim_end_matches('.').to_owned();
                }
            }
        });
        let port = port.await.expect("chromedriver names its port");
        // It goes on writing, and must not block.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        builder.capabilities(capabilities(kind));
        let page = builder.connect(&format!("http://127.0.0.1:{port}")).await.expect("the browser starts");
        let browser = Self { page, base: format!("http://{service}"), driver };
        browser.own("Page.addScriptToEvaluateOnNewDocument", json!({"source": HURRY_SCRIPT})).await;
        Some(browser)
    }

    /// Opens a path of the service.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn open(&self, path: &str) {
        self.page.goto(&format!("{}{path}", self.base)).await.expect("the page opens");
    }

    /// The path of the page, with its query string.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn path(&self) -> String {
        let url = self.page.current_url().await.expect("there is a page");
        url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
    }

    /// An element, once it is there.
    pub async fn element(&self, selector: &str) -> Element {
        let what = format!("{selector} is on the page");
        eventually(&what, SOON, || async { self.page.find(Locator::Css(selector)).await.ok() }).await
    }

    /// Types into an empty field.
    ///
    /// # Panics
    /// When it is no field.
    pub async fn fill(&self, selector: &str, text: &str) {
        let field = self.element(selector).await;
        field.clear().await.expect("it is a field");
        field.send_keys(text).await.expect("it takes text");
    }

    /// Clicks on an element.
    ///
    /// # Panics
    /// When it cannot be clicked.
    pub async fn click(&self, selector: &str) {
        self.click_on(Locator::Css(selector), selector).await;
    }

    /// Clicks on the button or link with this text.
    ///
    /// # Panics
    /// When there is none.
    pub async fn press(&self, label: &str) {
        let path = format!("//*[self::button or self::a][normalize-space()='{label}']");
        self.click_on(Locator::XPath(&path), label).await;
    }

    /// Clicks on an element once it is there. A refresh may replace the element before the click.
    async fn click_on(&self, place: Locator<'_>, what: &str) {
        let click = || async { self.page.find(place).await?.click().await };
        eventually_ok(SOON, || async { click().await.map_err(|error| format!("{what} is clicked: {error}")) }).await;
    }

    /// Presses keys where the focus is.
    ///
    /// # Panics
    /// When nothing takes them.
    pub async fn key(&self, keys: &str) {
        let focused = self.page.active_element().await.expect("something is in focus");
        focused.send_keys(keys).await.expect("it takes keys");
    }

    /// Everything that the page shows.
    ///
    /// # Panics
    /// When there is no page.
    pub async fn text(&self) -> String {
        let body = self.page.find(Locator::Css("body")).await.expect("there is a page");
        body.text().await.expect("it has text")
    }

    /// Waits until the page shows a text.
    pub async fn shows(&self, text: &str) {
        let what = format!("the page shows {text:?}");
        eventually(&what, SOON, || async {
            let body = self.page.find(Locator::Css("body")).await.ok()?;
            body.text().await.ok()?.contains(text).then_some(())
        })
        .await;
    }

    /// A command of the browser's own protocol.
    ///
    /// # Panics
    /// When the browser refuses it.
    pub async fn own(&self, command: &str, parameters: Value) -> Value {
        let own = Own { command: command.to_owned(), parameters };
        self.page.issue_cmd(own).await.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Sets the window's width and the theme.
    pub async fn look(&self, width: u32, is_dark: bool) {
        let theme = if is_dark { "dark" } else { "light" };
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.own("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.own("Emulation.setEmulatedMedia", features).await;
    }

    /// Writes a picture of the whole page to `target/console`, when `PICTURES` is set (`make pictures`).
    ///
    /// # Panics
    /// When it cannot be written.
    pub async fn picture(&self, name: &str) {
        if std::env::var_os("PICTURES").is_none() {
            return;
        }
        let taken = self.own("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await;
        use base64::Engine;
        let data = taken["data"].as_str().expect("it is a picture");
        let png = base64::engine::general_purpose::STANDARD.decode(data).expect("it is base64");
        let folder = repository().join("target/console");
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(folder.join(format!("{name}.png")), png).expect("the picture can be written");
    }

    /// The addresses of every request that the browser has made since the last call.
    ///
    /// # Panics
    /// When the browser keeps no log.
    pub async fn requests(&self) -> Vec<String> {
        let entries = self.page.issue_cmd(Log).await.expect("there is a log");
        let read = |entry: &Value| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let url = &message["message"]["params"]["request"]["url"];
            (message["message"]["method"] == "Network.requestWillBeSent").then(|| url.as_str().map(str::to_owned))?
        };
        entries.as_array().into_iter().flatten().filter_map(read).collect()
    }

    /// Ends the browser.
    pub async fn close(mut self) {
        let _ = self.page.close().await;
        let _ = self.driver.kill().await;
    }
}

fn capabilities(kind: Kind) -> serde_json::Map<String, Value> {
    let script = if kind.is_without_script { 2 } else { 1 };
    let options = json!({
        "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900",
                 "--disable-background-networking", "--disable-component-update", "--no-first-run", "--lang=en"],
        "prefs": {"profile.managed_default_content_settings.javascript": script},
        "perfLoggingPrefs": {"enableNetwork": true},
    });
    let all = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL"}});
    all.as_object().cloned().unwrap_or_default()
}

/// A command of the Chrome DevTools Protocol, through the driver.
#[derive(Debug)]
struct Own {
    command: String,
    parameters: Value,
}

/// Reads the log of requests.
#[derive(Debug)]
struct Log;

fn of_session(base: &url::Url, session: Option<&str>, path: &str) -> Result<url::Url, url::ParseError> {
    base.join(&format!("session/{}/{path}", session.unwrap_or_default()))
}

impl WebDriverCompatibleCommand for Own {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        of_session(base, session, "goog/cdp/execute")
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"cmd": self.command, "params": self.parameters}).to_string()))
    }
}

impl WebDriverCompatibleCommand for Log {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        of_session(base, session, "se/log")
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"type": "performance"}).to_string()))
    }
}
