//! What pages name exists: the files and headings that their links lead to, and the code that some of them quote.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use crate::root;

/// Folders that hold nothing of the repository.
const FOREIGN: [&str; 4] = [".git", ".local", "node_modules", "target"];

/// The pages in which what begins like a file between backticks is one.
const QUOTING: [&str; 3] = ["SECURITY.md", "deploy/security.md", "deploy/hosts.md"];

/// A folder with pages.
struct Site {
    root: PathBuf,
    /// The text of each Markdown page, by its path from the root.
    pages: BTreeMap<PathBuf, String>,
}

impl Site {
    fn read(root: PathBuf) -> Self {
        let (mut pages, mut folders) = (BTreeMap::new(), vec![PathBuf::new()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder)).unwrap().map(Result::unwrap) {
                let path = folder.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    folders.extend((!is_foreign(&path)).then_some(path));
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    let text = fs::read_to_string(entry.path()).unwrap();
                    pages.insert(path, text);
                }
            }
        }
        Self { root, pages }
    }

    /// Whether a link of a page leads to a file or a folder here, and to a heading if it has an anchor.
    fn has(&self, page: &Path, link: &str) -> bool {
        let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        let target = match file {
            "" => Some(page.to_path_buf()),
            file => normal(&page.parent().unwrap().join(file)),
        };
        let Some(target) = target.filter(|target| !is_foreign(target)) else { return false };
        match anchor {
            None => self.root.join(target).exists(),
            Some(anchor) => self.pages.get(&target).is_some_and(|text| anchors(text).contains(anchor)),
        }
    }

    /// How many links there are, and those that lead nowhere.
    fn links(&self) -> (usize, Vec<String>) {
        let links = self.pages.iter().flat_map(|(page, text)| links(text).into_iter().map(move |link| (page, link)));
        let (good, bad): (Vec<_>, Vec<_>) = links.partition(|(page, link)| self.has(page, link));
        let bad: Vec<_> = bad.into_iter().map(|(page, link)| format!("{}: {link}", page.display())).collect();
        (good.len() + bad.len(), bad)
    }
}

fn is_foreign(path: &Path) -> bool {
    path.iter().any(|part| FOREIGN.iter().any(|foreign| part == *foreign))
}

/// The lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut open = None;
    text.lines().filter(move |line| {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        let is_prose = open.is_none() && mark.is_none();
        open = match (open, mark) {
            (None, mark) => mark,
            (open, mark) if open == mark => None,
            (open, _) => open,
        };
        is_prose
    })
}

/// The text of a heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let is_heading = (1..=6).contains(&(line.len() - text.len())) && text.starts_with(' ');
    is_heading.then(|| text.trim_end().trim_end_matches('#').trim())
}

/// A heading's anchor by GitHub's rules: letters in lower case, digits, `-` and `_` stay, a blank becomes `-`, the rest goes.
fn slug(heading: &str) -> String {
    let (first, rest) = heading.split_once("](").unwrap_or((heading, ""));
    let shown = [first, rest.split_once(')').map_or("", |(_, rest)| rest)].concat();
    let kept = shown.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).flat_map(char::to_lowercase).collect()
}

/// The anchors of a page. One that repeats gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times = BTreeMap::<String, usize>::new();
    let numbered = |slug: String| {
        let before = times.entry(slug.clone()).or_default();
        *before += 1;
        if *before == 1 { slug } else { format!("{slug}-{}", *before - 1) }
    };
    prose(text).filter_map(heading).map(slug).map(numbered).collect()
}

/// A paragraph without what stands between backticks.
fn without_code(paragraph: &str) -> String {
    let (mut kept, mut rest) = (String::new(), paragraph);
    while let Some((before, after)) = rest.split_once('`') {
        kept += before;
        let more = after.trim_start_matches('`');
        let mark = "`".repeat(1 + after.len() - more.len());
        rest = more.split_once(&mark).map_or(more, |(_, rest)| rest);
    }
    kept + rest
}

/// Where the links of a page lead, other than to the web.
fn links(text: &str) -> Vec<String> {
    let prose: Vec<_> = prose(text).collect();
    let text: String = prose.join("\n").split("\n\n").map(|paragraph| without_code(paragraph) + "\n\n").collect();
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let defined = text.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split_once("]: "));
    let all = inline.chain(defined.map(|(_, link)| link)).filter_map(|link| link.split_whitespace().next());
    all.filter(|link| !link.contains("://") && !link.starts_with("mailto:")).map(str::to_owned).collect()
}

/// A path without `.` and `..`, unless it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => normal.push(part),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => return None,
        }
    }
    Some(normal)
}

#[test]
fn every_link_of_every_page_leads_to_a_file_and_to_a_heading() {
    let site = Site::read(root());
    let (links, bad) = site.links();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(site.pages.len() > 30 && links > 200, "only {links} links of {} pages were read", site.pages.len());
}

#[test]
fn every_link_of_the_debian_packages_pages_leads_to_what_it_has() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("package-pages-{}", std::process::id()));
    let written = Command::new(root().join("deploy/local/lib/package_pages")).arg(root()).arg(&folder).status();
    assert!(written.unwrap().success());
    let site = Site::read(folder.clone());
    let (links, bad) = site.links();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(links > 80, "only {links} links of {} pages were read", site.pages.len());
    for page in
        ["hosts.md", "webhookctl.md", "defaults.toml", "prometheus/alerts.yml", "grafana/dashboards/overview.json"]
    {
        assert!(folder.join(page).exists(), "{page}");
    }
    let security = &site.pages[Path::new("security.md")];
    assert!(
        security.contains("](webhookctl.md#rotating-the-keys)"),
        "a link leads to where its target is in the package"
    );
    let readme = &site.pages[Path::new("README.md")];
    assert!(
        readme.contains("Kubernetes (`deploy/helm/README.md` in the repository)"),
        "what the package has not is no link"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_link_that_leads_nowhere_is_found_however_it_is_written() {
    let page = Path::new("deploy/page.md");
    let text = "# One, `two` & [three](a.md)\n## Twice\n## Twice\n```sh\n# Code [a](b.md)\n```\nA `[a](b.md)` and `` ` [a](b.md) ``.\n";
    let site = Site { root: root(), pages: BTreeMap::from([(page.to_path_buf(), text.to_owned())]) };
    assert_eq!(links(text), ["a.md"]);
    let links = links(
        "[a](#one-two--three) [b](page.md#twice-1) [c](../Cargo.toml 'its title')\n[d](compose) <https://a.example>\n[e]: ../README.md\n\
         [`a`](#code-a) [b](#twice-2) [c\n](nothing.md) [d](../../elsewhere.md) [e](../target) [f](../Cargo.toml#l1) [g](/README.md)\n\
         [h]: nothing\n[i](https://b.example#c) [j](mailto:a@b.example)",
    );
    let (good, bad): (Vec<_>, Vec<_>) = links.iter().partition(|link| site.has(page, link));
    assert_eq!(good, ["#one-two--three", "page.md#twice-1", "../Cargo.toml", "compose", "../README.md"]);
    let expected = [
        "#code-a",
        "#twice-2",
        "nothing.md",
        "../../elsewhere.md",
        "../target",
        "../Cargo.toml#l1",
        "/README.md",
        "nothing",
    ];
    assert_eq!(bad, expected);
}

#[test]
fn what_pages_quote_as_files_exists() {
    let faults = |text: &str| {
        let quoted = text.split('`').skip(1).step_by(2);
        let is_file = |word: &&str| ["crates/", "tests/", "proto-schemas/"].iter().any(|below| word.starts_with(below));
        quoted.filter(is_file).filter(|file| !root().join(file).exists()).map(str::to_owned).collect::<Vec<_>>()
    };
    for page in QUOTING {
        assert_eq!(faults(&fs::read_to_string(root().join(page)).unwrap()), [""; 0], "{page}");
    }
    assert_eq!(faults("`crates/nothing.rs` `crates/ledger`"), ["crates/nothing.rs"]);
}
