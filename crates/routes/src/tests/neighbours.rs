use mesh_api::istio::StringMatch;
use regex::Regex;

use super::world::{World, login, no_login, protected, provider, request, table};
use crate::Output;

const HOST: &str = "x.example";

fn world() -> World {
    World::new().provider(provider("a/sso", 0, |_| {}))
}

/// The protected paths, and beside them the open ones.
fn mixed(protected_paths: &[&str], open: &[&str]) -> mesh_api::IngressRequest {
    let paths: Vec<&str> = protected_paths.iter().chain(open).copied().collect();
    let mut request = protected(request("a/shop", 0, &[HOST], &paths), "sso");
    for route in &mut request.spec.routes[protected_paths.len()..] {
        route.auth = Some(no_login());
    }
    request
}

/// Whether a refusal of the host matches the path, before anything that forwards does.
fn refused(output: &Output, path: &str) -> Option<u16> {
    for route in &output.virtual_services[0].spec.http {
        let hit = route.matches.iter().any(|entry| {
            let lower =
                |text: &str| if entry.ignore_uri_case { text.to_ascii_lowercase() } else { text.to_owned() };
            match entry.uri.as_ref().unwrap() {
                StringMatch::Exact(value) => lower(value) == lower(path),
                StringMatch::Prefix(value) => lower(path).starts_with(&lower(value)),
                StringMatch::Regex(regex) => Regex::new(&format!("^(?:{regex})$")).unwrap().is_match(path),
            }
        });
        if hit {
            return route
                .direct_response
                .as_ref()
                .map(|answer| answer.status)
                .filter(|status| *status != 503);
        }
    }
    None
}

#[test]
fn an_open_prefix_beside_a_protected_path_refuses_what_could_be_it() {
    let output = world().with(mixed(&["/admin", "=/secret"], &["/", "/pub"])).compile();
    for path in [
        "/%2fadmin",
        "/x%2F..%2fadmin",
        "/x%5cadmin",
        "/%2e%2e/admin",
        "/x/%2E",
        "/%252fadmin",
        "/admin%3fx",
        "/admin%3Bx",
        "/admin%00",
        "/admin%0a",
        "/admin%09/x",
        "/x%1F",
        "/x%7f",
        "/x;y",
        "//admin",
        "/x//admin",
        "/x\\admin",
        "/admin%20",
        "/x%20/y",
        "/%c0%afadmin",
        "/%C1%9cadmin",
        "/ADMIN",
        "/Admin/x",
        "/SECRET",
        "/sEcret/",
        "/pub//admin",
        "/pub/..%2fadmin",
        "/pub/;/admin",
        "/pub/%2e%2e/admin",
    ] {
        assert_eq!(refused(&output, path), Some(400), "{path}");
    }
    for path in [
        "/",
        "/x",
        "/pub",
        "/pub/",
        "/pub/a b",
        "/pub/a%20b",
        "/pub/%41",
        "/administrator",
        "/secretary",
        "/x%2bY",
    ] {
        assert_eq!(refused(&output, path), None, "{path}");
    }
    // Where nothing is protected, nothing is refused.
    let output = world().with(mixed(&[], &["/"])).compile();
    assert_eq!(table(&output, HOST), ["/* -> shop.a:80"]);
    // An exact open path has one spelling.
    let output = world().with(mixed(&["/"], &["=/health"])).compile();
    assert_eq!(table(&output, HOST), ["=/health -> shop.a:80", "!/* -> login, shop.a:80", "/* -> 503"]);
}

#[test]
fn paths_that_are_not_normalized_are_refused_in_more_spellings() {
    let mut world = world().with(mixed(&["/admin"], &["/pub", "/"]));
    let facts = world.chains.entry(crate::ObjectKey::new("istio-system", "public")).or_default();
    facts.paths_not_normalized = true;
    let output = world.compile();
    for path in
        ["/pub/../admin", "/pub/./x", "/pub/..", "/pub/.", "/%61dmin", "/a%64min", "/x%2d", "/x%7E", "/x%39"]
    {
        assert_eq!(refused(&output, path), Some(400), "{path}");
    }
    for path in ["/pub/..x", "/pub/.well-known", "/pub/%3a"] {
        assert_eq!(refused(&output, path), None, "{path}");
    }
}

#[test]
fn a_protected_path_with_reserved_characters_has_several_spellings() {
    let output = world().with(mixed(&["/a:b@c", "=/x%20y"], &["/"])).compile();
    for path in ["/a%3Ab@c", "/a:b%40c/x", "/A%3ab%40C", "/x%20Y"] {
        assert_eq!(refused(&output, path), Some(400), "{path}");
    }
    assert_eq!(refused(&output, "/a-b"), None);
    // What would be too long for Istio to accept as an expression answers 503 instead.
    let long = format!("/{}", "a:".repeat(300));
    let output = world().with(mixed(&[&long], &["/"])).compile();
    assert_eq!(table(&output, HOST).last().unwrap(), "/* -> 503");
    let outcome = &super::world::verdict(&output, "a/shop").routes[1];
    assert!(outcome.reason == "InvalidSpec" && outcome.message.contains("too long"), "{outcome:?}");
}

#[test]
fn an_exact_protected_path_covers_itself_with_a_slash() {
    let output = world().with(mixed(&["=/secret"], &["/"])).compile();
    assert_eq!(
        table(&output, HOST)[..2],
        ["!=/secret !=/secret/ -> login, shop.a:80", "=/secret =/secret/ -> 503"]
    );
    let output = world().with(mixed(&["=/secret"], &["=/secret/"])).compile();
    assert_eq!(
        table(&output, HOST),
        ["=/secret/ -> shop.a:80", "!=/secret -> login, shop.a:80", "=/secret -> 503"],
        "unless somebody asks for that by name"
    );
}

#[test]
fn the_auth_services_own_pages_are_refused() {
    let with_pages = |prefix: &str, pages: &[&str]| {
        World::new().provider(provider("a/sso", 0, |spec| {
            spec.path_prefix = prefix.to_owned();
            spec.own_paths = pages.iter().map(|page| (*page).to_owned()).collect();
        }))
    };
    let request = |paths: &[&str]| protected(request("a/shop", 0, &[HOST], paths), "sso");
    let output = with_pages("", &["/oauth2/", "/ping"]).with(request(&["/"])).compile();
    for path in [
        "/oauth2",
        "/oauth2/",
        "/oauth2/start",
        "/OAuth2/x",
        "/ping",
        "/ping/",
        "/PING",
        "//oauth2/x",
        "/x/..%2foauth2/",
        "/oauth2%2fstart",
        "/;/oauth2",
    ] {
        assert_eq!(refused(&output, path), Some(403), "{path}");
    }
    for path in ["/", "/oauth", "/pings", "/x/oauth2x"] {
        assert_eq!(refused(&output, path), None, "{path}");
    }
    // The service is asked about /check/..., never about its own pages.
    let output = with_pages("/check", &["/oauth2/"]).with(request(&["/"])).compile();
    assert_eq!(refused(&output, "/oauth2/x"), None);
    let output = with_pages("/check", &["/check/own/"]).with(request(&["/"])).compile();
    assert_eq!(refused(&output, "/own/x"), Some(403));
    assert_eq!(refused(&output, "/x"), None);
    // All that it is asked about is its own.
    let output = with_pages("/oauth2/auth", &["/oauth2/"]).with(request(&["/x"])).compile();
    assert_eq!(refused(&output, "/x"), Some(403));
    // A route that lies within the pages, and one that does not meet them.
    let output = with_pages("", &["/oauth2/"]).with(request(&["/oauth2/x", "/app"])).compile();
    assert_eq!(refused(&output, "/oauth2/x/y"), Some(403));
    assert_eq!(refused(&output, "/app/oauth2/x"), None);
}

#[test]
fn protected_methods_cover_every_spelling() {
    let mut request = mixed(&["/", "/x"], &[]);
    request.spec.routes[0].methods = vec![mesh_api::integrator::Method::Get];
    request.spec.routes[1].auth = Some(login("sso"));
    let output = world().with(request).compile();
    assert_eq!(
        table(&output, HOST)[2..],
        ["(?i:GET|HEAD) !/* -> login, shop.a:80", "(?i:GET|HEAD) /* -> 503"]
    );
}
