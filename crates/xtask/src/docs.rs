//! Keeps the book true: what it quotes is what the tests apply, and what it links to exists.

use std::path::{Path, PathBuf};

fn pages() -> Vec<(PathBuf, String)> {
    let root = testbed::paths::repo_root();
    let mut paths = vec![root.join("README.md")];
    for folder in ["docs", "docs/how-to"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        paths.extend(entries.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The documents inside the fences of a language.
fn fenced<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let open = format!("```{language}\n");
    text.split(&open).skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

#[test]
fn every_quoted_object_is_one_that_a_test_applies() {
    let examples = testbed::paths::repo_root().join("docs/examples");
    let applied: String = std::fs::read_dir(examples)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let mut quoted = 0;
    for (path, text) in pages() {
        for block in fenced(&text, "yaml") {
            for document in block.split("\n---\n") {
                quoted += 1;
                assert!(
                    applied.contains(document.trim_end()),
                    "{}: not in docs/examples:\n{document}",
                    path.display()
                );
            }
        }
    }
    assert!(quoted >= 20, "only {quoted} objects are quoted: are the fences still written as here?");
}

/// The anchor that a heading gets on GitHub.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[test]
fn links_lead_somewhere() {
    for (path, text) in pages() {
        let folder = path.parent().unwrap_or(Path::new("."));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let target = folder.join(target);
            assert!(target.exists(), "{} links to {link}", path.display());
            let Some((_, anchor)) = link.split_once('#') else { continue };
            let text = std::fs::read_to_string(&target).unwrap();
            let anchors: Vec<String> =
                text.lines().filter(|line| line.starts_with('#')).map(anchor_of).collect();
            assert!(
                anchors.iter().any(|known| known == anchor),
                "{} links to {link}: {anchors:?}",
                path.display()
            );
        }
    }
}
