use mesh_api::Reason;

use super::world::{World, reason, request, route_reasons, table, verdict};

#[test]
fn the_most_specific_path_comes_first() {
    for (routes, expected) in [
        (&["/"][..], &["/* -> shop.a:80"][..]),
        (&["/app"], &["=/app /app/* -> shop.a:80"]),
        (&["/app/"], &["=/app /app/* -> shop.a:80"]),
        (&["=/app"], &["=/app -> shop.a:80"]),
        (&["=/app/"], &["=/app/ -> shop.a:80"]),
        (
            &["/", "/app", "/app/v2", "=/z", "=/app/v2/x"],
            &[
                "=/app/v2/x -> shop.a:80",
                "=/z -> shop.a:80",
                "=/app/v2 /app/v2/* -> shop.a:80",
                "=/app /app/* -> shop.a:80",
                "/* -> shop.a:80",
            ],
        ),
        // A prefix's match of its own path is dead behind an exact route of that path.
        (&["/app -> shop:80", "=/app -> shop:8080"], &["=/app -> shop.a:8080", "/app/* -> shop.a:80"]),
        (&["/ -> shop:80", "=/ -> shop:8080"], &["=/ -> shop.a:8080", "/* -> shop.a:80"]),
        (&["/apple -> shop:8080", "/app"], &["=/apple /apple/* -> shop.a:8080", "=/app /app/* -> shop.a:80"]),
    ] {
        let output = World::new().with(request("a/shop", 0, &["x.example"], routes)).compile();
        assert_eq!(table(&output, "x.example"), expected, "{routes:?}");
        assert_eq!(reason(&output, "a/shop"), Reason::Ready, "{routes:?}");
        assert!(output.withheld.is_empty());
    }
}

#[test]
fn one_path_twice_in_a_request_is_told() {
    let output =
        World::new().with(request("a/shop", 0, &["x.example"], &["/app", "/app/ -> shop:8080"])).compile();
    assert_eq!(table(&output, "x.example"), ["=/app /app/* -> shop.a:80"]);
    assert_eq!(route_reasons(&output, "a/shop"), ["Served", "PathConflict"]);
    assert!(verdict(&output, "a/shop").accepted.message.contains("twice"));
}

#[test]
fn requests_of_one_namespace_share_a_host_by_path() {
    for (first, second, winner) in [(1, 2, "80"), (2, 1, "8080")] {
        let output = World::new()
            .with(request("a/one", first, &["x.example"], &["/ -> shop:80"]))
            .with(request("a/two", second, &["x.example"], &["/ -> shop:8080", "/two"]))
            .compile();
        let root = format!("/* -> shop.a:{winner}");
        assert_eq!(table(&output, "x.example"), ["=/two /two/* -> shop.a:80", root.as_str()]);
        let (lost, won) = if first < second { ("a/two", "a/one") } else { ("a/one", "a/two") };
        assert_eq!(reason(&output, lost), Reason::PathConflict);
        assert!(verdict(&output, lost).accepted.message.contains(won), "the loser is told by whom it lost");
        assert_eq!(reason(&output, won), Reason::Ready);
        assert_eq!(verdict(&output, "a/two").urls.len(), 1, "what is not lost is served");
    }
}

#[test]
fn what_admission_would_refuse_is_refused() {
    for (route, message) in [
        ("app", "must begin with /"),
        ("/a//b", "empty segment"),
        ("=/a/../b", "segment"),
        ("/a%2fb", "encoded"),
        ("/a?b", "letters"),
    ] {
        let output = World::new().with(request("a/shop", 0, &["x.example"], &[route, "/ok"])).compile();
        assert_eq!(table(&output, "x.example"), ["=/ok /ok/* -> shop.a:80"], "the rest is served: {route}");
        assert_eq!(route_reasons(&output, "a/shop"), ["InvalidSpec", "Served"], "{route}");
        let accepted = &verdict(&output, "a/shop").accepted;
        assert_eq!(accepted.reason, Reason::InvalidSpec);
        assert!(
            accepted.message.contains(message) && accepted.message.contains("the rest is served"),
            "{accepted:?}"
        );
    }
    let output = World::new().with(request("a/shop", 0, &["x.example"], &["app"])).compile();
    assert!(output.virtual_services.is_empty(), "an object without routes is never emitted");
    assert!(output.withheld.is_empty());
    let mut weightless = request("a/shop", 0, &["x.example"], &["/"]);
    weightless.spec.routes[0].backends[0].weight = 0;
    let output = World::new().with(weightless).compile();
    assert_eq!(table(&output, "x.example"), ["/* -> 503"]);
    assert_eq!(reason(&output, "a/shop"), Reason::InvalidSpec);
}
