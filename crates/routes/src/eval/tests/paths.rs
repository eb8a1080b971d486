use serde_json::json;

use super::world::{World, all_to, service};
use crate::eval::{PathNormalization, Request};

/// What the Service gets of a path, by the way in which Envoy reads paths.
fn read(paths: PathNormalization, path: &str) -> String {
    let mut world = World::plain().with(service("a/all", 0, &["*"], &json!([all_to("s")])));
    world.proxy.paths = paths;
    let answer = world.get("shop.example.com", path);
    answer.strip_prefix("s ").map_or(answer.clone(), str::to_owned)
}

#[test]
fn envoy_normalizes_paths() {
    for (sent, read_as) in [
        ("/", "/"),
        ("/a%41b", "/aAb"),
        ("/%7euser", "/~user"),
        ("/%2e/x", "/x"),
        ("/a/%2E%2e/b", "/b"),
        ("/a/%2e./b", "/b"),
        ("/a/.%2e", "/"),
        ("/a/../b", "/b"),
        ("/a/./b", "/a/b"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/../a", "/a"),
        ("/a/b/../../..", "/"),
        ("/a//b", "/a//b"),
        ("//", "//"),
        ("//a/..", "//"),
        ("/a\\b", "/a/b"),
        ("/a\\..\\b", "/b"),
        ("/a%2fb", "/a%2fb"),
        ("/a%5cb", "/a%5cb"),
        ("/a%3fb", "/a%3fb"),
        ("/a%00b", "400"),
        ("/%", "/%"),
        ("/%zz", "/%zz"),
        ("/a%2", "/a%2"),
        ("/%%300", "/%2500"),
        ("/%%30%30", "/%2500"),
        ("/a;x", "/a;x"),
        ("/a|b", "/a%7Cb"),
        ("/a^b{c}`d\"<e>", "/a%5Eb%7Bc%7D%60d%22%3Ce%3E"),
        ("/a[b]~!$&'()*+,=:@c", "/a[b]~!$&'()*+,=:@c"),
        ("/a%C3%A9", "/a%C3%A9"),
        ("/a/.b", "/a/.b"),
        ("/a/..b", "/a/..b"),
        ("/a/...", "/a/..."),
        ("/a%2e", "/a."),
        ("/a/%2e", "/a/"),
        ("/a%2e%2e/b", "/a../b"),
        ("/a/..%2fb", "/a/..%2fb"),
        ("/%2e%2e%2fx", "/..%2fx"),
        ("/a?x=/../y", "/a?x=/../y"),
        ("/a#b", "/a"),
        ("/a/../b#/../c?d", "/b"),
        ("/a?x#y", "/a?x"),
        ("/a%23b", "/a%23b"),
        ("/a b", "400"),
        ("/a\u{7f}b", "400"),
        ("\\a", "400"),
        ("a", "400"),
        ("", "400"),
        ("*", "400"),
    ] {
        assert_eq!(read(PathNormalization::Base, sent), read_as, "{sent}");
    }
}

#[test]
fn parameters_of_dot_segments_depend_on_the_fix() {
    for (sent, fixed, unfixed) in [
        ("/a/..;x/b", "/b", "/a/..;x/b"),
        ("/a/.;x/b", "/a/b", "/a/.;x/b"),
        ("/a/..;", "/", "/a/..;"),
        ("/..;/..;/a", "/a", "/..;/..;/a"),
        ("/a/..;%2f../b", "/b", "/a/..;%2f../b"),
        ("/a/..;\\b", "/", "/a/..;/b"),
        ("/a/.;.;/b", "/a/b", "/a/.;.;/b"),
        ("/a/%2e%2e;/b", "/a/..;/b", "/a/..;/b"),
        ("/a/...;/b", "/a/...;/b", "/a/...;/b"),
        ("/a\\..;/b", "/a/..;/b", "/a/..;/b"),
        ("/a/b/..;/c/..;", "/a/", "/a/b/..;/c/..;"),
        ("/a/..;?..;/b", "/?..;/b", "/a/..;?..;/b"),
    ] {
        assert_eq!(read(PathNormalization::Base, sent), fixed, "{sent}");
        assert_eq!(read(PathNormalization::BaseUnpatched, sent), unfixed, "{sent}");
    }
}

#[test]
fn paths_can_be_left_as_they_are() {
    for path in ["/a/..;x/b", "/a/../b", "/a%41", "/a%00", "/a\\b", "/a|b"] {
        assert_eq!(read(PathNormalization::None, path), path);
    }
    assert_eq!(read(PathNormalization::None, "/a#b"), "/a");
}

#[test]
fn the_absolute_form_names_the_host() {
    let world = World::plain()
        .with(service("a/shop", 0, &["shop.example.com"], &json!([all_to("shop")])))
        .with(service("a/all", 0, &["*"], &json!([all_to("s")])));
    for (target, answer) in [
        ("http://shop.example.com/x/../y", "shop /y"),
        ("HTTPS://shop.example.com:99/x", "shop /x"),
        ("http://shop.example.com", "shop /"),
        ("http://other.example.com/x", "s /x"),
        ("http://shop.example.com?q", "404"),
        ("ftp://shop.example.com/x", "400"),
    ] {
        assert_eq!(world.get("elsewhere.example.com", target), answer, "{target}");
    }
    assert_eq!(world.ask(&Request::get("shop.example.com", "*").method("OPTIONS")), "404");
}
