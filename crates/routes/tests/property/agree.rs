//! The compiled objects do what the requests say.

use std::collections::BTreeSet;

use mesh_api::syntax::is_host;
use proptest::prelude::*;
use routes::eval::{Answer, Evaluator, Forward};
use routes::guard::Provider;

use crate::ask::{Ask, Draw, draws, entries};
use crate::generate::{Features, world};
use crate::reading::{Reading, Said, Served, decoded};
use crate::world::{GATEWAYS, World, holds};

/// Holds one answer against what is said.
fn check(
    world: &World,
    reading: &Reading<'_>,
    evaluators: &[Evaluator],
    ask: &Ask,
) -> Result<(), TestCaseError> {
    let ids: Vec<_> = reading.providers().map(Provider::id).collect();
    let chain = holds(&ids);
    for (place, entry) in entries(world) {
        let evaluator = &evaluators[place];
        let passed = evaluator.answer(&entry, &ask.request, &chain, true);
        let denied = evaluator.answer(&entry, &ask.request, &chain, false);
        let context = format!("{ask:?} at {entry:?} of {:?}", GATEWAYS[place]);
        if matches!(passed, Answer::Refused(_)) {
            prop_assert_eq!(&passed, &denied, "{}", context);
            continue;
        }
        let routed = world.paths().apply(&ask.request.path);
        let Some(path) = routed else {
            prop_assert!(false, "{context} was not refused: {passed:?}");
            continue;
        };
        // A host that no request can have is nobody's, apart from redirects, which know no requests.
        let host = ask.host.as_str();
        let said = reading.says(place, entry.port, host, &path, &ask.request.method);
        let said = if is_host(host) || said == Said::Redirect { said } else { Said::Nothing };
        let agrees = match &said {
            Said::Nothing => {
                let refused =
                    || status(&passed) == Some(400) && reading.is_another_spelling(place, host, &path);
                (passed == Answer::NoRoute || refused()) && denied == passed
            }
            Said::Redirect => passed == Answer::HttpsRedirect && denied == passed,
            Said::Closed => status(&passed) == Some(503) && denied == passed,
            Said::Served(served) => agrees(reading, served, &passed, &denied),
        };
        if let (Said::Served(served), Some(forward)) = (&said, passed.forward())
            && forward.check.is_none()
        {
            let same = reading.leniently(place, host, &lenient(&path), &ask.request.method);
            let disguised = same.is_some_and(|(route, login)| login && route != served.route)
                && !served.route.0
                && lenient(&served.route.1) == served.route.1.to_ascii_lowercase();
            prop_assert!(!disguised, "{context}: a lenient backend takes {path} for a protected path");
        }
        prop_assert!(
            agrees,
            "{context}, path {path}:\nsaid {said:#?}\nbut {passed:#?}\nand without login {denied:#?}"
        );
    }
    Ok(())
}

/// The path as a lenient backend may read it: decoded more than once, without parameters, empty and dot segments and
/// blanks, `\` as `/`, in lower case, without query and last slash.
fn lenient(path: &str) -> String {
    let mut text = path.split('?').next().unwrap_or_default().to_ascii_lowercase();
    for _ in 0..3 {
        text = text.replace("%c0%af", "/").replace("%c0%ae", ".");
        text = decoded(&text, |byte| byte.is_ascii()).to_ascii_lowercase().replace('\\', "/");
        text = text.split('?').next().unwrap_or_default().to_owned();
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in text.split('/') {
        match segment.split(';').next().unwrap_or_default().trim_end() {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

fn status(answer: &Answer) -> Option<u16> {
    match answer {
        Answer::Direct { status, .. } => Some(*status),
        _ => None,
    }
}

fn agrees(reading: &Reading<'_>, served: &Served, passed: &Answer, denied: &Answer) -> bool {
    if let Some(refused) = served.must_refuse {
        return status(passed) == Some(refused) && denied == passed;
    }
    if served.may_refuse.is_some() && status(passed) == served.may_refuse && denied == passed {
        return true;
    }
    let Some(forward) = passed.forward() else { return false };
    let id = served.login.as_ref().and_then(|login| reading.provider(login)).map(Provider::id);
    let id = id.as_ref().map(ToString::to_string);
    let refused_rightly = match (&id, denied) {
        (None, denied) => denied == passed,
        (Some(id), Answer::Denied { provider, .. }) => provider == id,
        _ => false,
    };
    refused_rightly && forward.check == id && does(served, forward, false)
}

/// Whether the request is sent on as is said. While a provider changes, its older form may be in force, whose identity
/// headers are its own, and are taken from clients on open routes beside those of the new form.
pub(crate) fn does(served: &Served, forward: &Forward, changing: bool) -> bool {
    let targets: Vec<_> = forward
        .targets
        .iter()
        .map(|target| (target.host.clone(), target.port.unwrap_or_default(), target.weight))
        .collect();
    targets == served.targets
        && forward.path == served.path
        && forward.timeout == served.timeout
        && forward.set_headers.is_empty()
        && match spellings(&served.stripped) {
            all if forward.removed_headers == all => true,
            all => changing && (served.login.is_some() || forward.removed_headers.is_superset(&all)),
        }
}

/// These headers in every mixture of dashes and underscores. The guard header needs one spelling: the chain removes the
/// others.
fn spellings(stripped: &BTreeSet<String>) -> BTreeSet<String> {
    let mut spellings = BTreeSet::new();
    for header in stripped {
        if header == "x-ii-guard" {
            spellings.insert(header.clone());
            continue;
        }
        let dashes: Vec<usize> = header.match_indices('-').map(|(at, _)| at).collect();
        for choice in 0..1_u32 << dashes.len() {
            let mut spelling = header.clone().into_bytes();
            for (bit, at) in dashes.iter().enumerate() {
                if choice & (1 << bit) != 0 {
                    spelling[*at] = b'_';
                }
            }
            spellings.insert(String::from_utf8(spelling).expect("ASCII"));
        }
    }
    spellings
}

fn hold(world: &World, draws: &[Draw]) -> Result<(), TestCaseError> {
    let output = world.compile();
    prop_assert!(output.withheld.is_empty(), "withheld: {:?}", output.withheld);
    let reading = Reading::new(world);
    let evaluators: Vec<Evaluator> = (0..GATEWAYS.len())
        .map(|place| world.evaluator(place, output.virtual_services.iter().map(AsRef::as_ref), world.paths()))
        .collect();
    for draw in draws {
        check(world, &reading, &evaluators, &draw.ask(&[world]))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(80))]

    #[test]
    fn objects_do_what_requests_say(world in world(Features::ALL), draws in draws()) {
        hold(&world, &draws)?;
    }

    #[test]
    fn objects_do_what_requests_of_one_host_say(world in world(Features::ONE_HOST), draws in draws()) {
        hold(&world, &draws)?;
    }
}
