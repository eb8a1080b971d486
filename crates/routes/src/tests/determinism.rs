use super::world::{
    World, allowed, at, binding, deleted, gateway, naming, protected, provider, request, server,
};
use crate::Output;

/// A small generator of numbers of no quality (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for position in (1..items.len()).rev() {
            items.swap(position, self.below(position + 1));
        }
    }
}

/// Requests of three namespaces that conflict in every way, with equal ages among them.
fn crowded(random: &mut Random) -> World {
    let sharing = binding("public", |spec| {
        spec.hosts.allowed = vec![allowed("*.example", true), allowed("own.example", false)];
    });
    let mut other = binding("other", |_| {});
    other.metadata.creation_timestamp = Some(at(3));
    let mut world = World::new()
        .bound([sharing, other])
        .gateway(gateway(&[server(80, "HTTP", "", &["*"]), server(443, "HTTPS", "SIMPLE", &["x.example"])]));
    let hosts = ["x.example", "y.example", "own.example", "no.org"];
    let paths = ["/", "/app", "=/app", "/app/v2", "/app/ -> gone:1", "=/x -> shop:8080", "bad"];
    for number in 0..40 {
        let namespace = ["a", "b", "c"][random.below(3)];
        let object = format!("{namespace}/r{number}");
        let second = i64::try_from(random.below(5)).unwrap();
        let hosts: Vec<&str> = hosts.iter().copied().filter(|_| random.below(2) == 0).collect();
        let mut routes: Vec<&str> = paths.iter().copied().filter(|_| random.below(2) == 0).collect();
        routes.push("/last");
        let made = request(&object, second, &hosts, &routes);
        world = world.with(match random.below(6) {
            0 => naming("other", made),
            1 => deleted(made),
            _ => made,
        });
    }
    world
}

fn bytes(output: &Output) -> String {
    format!("{}\n{:#?}", serde_json::to_string(&objects(output)).unwrap(), output)
}

#[test]
fn the_order_of_arrival_does_not_matter() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..10 {
        let mut world = crowded(&mut random);
        let output = world.compile();
        let expected = bytes(&output);
        assert!(output.virtual_services.len() >= 3, "x, y and own, and some of the template");
        assert_eq!(output.withheld, [""; 0]);
        assert!(output.requests.iter().any(|verdict| !verdict.accepted.holds()));
        for _ in 0..20 {
            random.shuffle(&mut world.requests);
            random.shuffle(&mut world.bindings);
            assert_eq!(bytes(&world.compile()), expected);
        }
    }
}

#[test]
fn objects_are_sorted_and_pass_the_check() {
    let mut random = Random(7);
    let output = crowded(&mut random).compile();
    let names: Vec<_> = output.virtual_services.iter().map(|object| object.metadata.name.clone()).collect();
    assert!(names.is_sorted());
    assert!(output.requests.is_sorted_by_key(|verdict| verdict.key.clone()));
    assert!(output.bindings.is_sorted_by_key(|verdict| verdict.name.clone()));
    for object in &output.virtual_services {
        assert_eq!(crate::validate(object, &crate::guard::TokenKey::new([7; 32])), []);
    }
}

fn objects(output: &Output) -> Vec<&mesh_api::istio::VirtualService> {
    output.virtual_services.iter().map(AsRef::as_ref).collect()
}

#[test]
fn only_the_changed_host_is_made_anew() {
    let mut compiler = crate::Compiler::default();
    let mut world = World::new();
    for n in 0..20 {
        world = world.with(request(&format!("a/r{n}"), n, &[&format!("h{n}.example")], &["/"]));
    }
    let first = compiler.compile(&world.input());
    assert_eq!(compiler.made(), 20);
    assert_eq!(bytes(&compiler.compile(&world.input())), bytes(&first));
    assert_eq!(compiler.made(), 0);
    // An older request comes in, so that all others move in the list; one changes; one goes.
    world.requests.insert(0, request("a/new", -1, &["new.example"], &["/"]));
    world.requests[5].spec.routes[0].backends[0].port = 8080;
    world.requests.pop();
    let second = compiler.compile(&world.input());
    assert_eq!(compiler.made(), 2);
    assert_eq!(bytes(&second), bytes(&world.compile()), "as if made from nothing");
    // What others refer to is part of it.
    world.services.remove(&crate::ObjectKey::new("a", "shop"));
    let third = compiler.compile(&world.input());
    assert_eq!(compiler.made(), 20);
    assert_eq!(bytes(&third), bytes(&world.compile()));
}

#[test]
fn another_key_of_tokens_makes_every_host_anew() {
    let mut compiler = crate::Compiler::default();
    let mut world = World::new()
        .provider(provider("a/sso", 0, |_| ()))
        .with(protected(request("a/shop", 0, &["shop.example"], &["/"]), "sso"))
        .with(request("a/open", 1, &["open.example"], &["/"]));
    let first = compiler.compile(&world.input());
    world.token_key = crate::guard::TokenKey::new([8; 32]);
    let second = compiler.compile(&world.input());
    assert_ne!(bytes(&second), bytes(&first));
    assert_eq!(bytes(&second), bytes(&world.compile()));
}
