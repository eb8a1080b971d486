//! The rules, each by a table.

mod auth;
mod backends;
mod bindings;
mod determinism;
mod gateways;
mod hosts;
mod neighbours;
mod objects;
mod overlap;
mod ownership;
mod paths;
mod size;
mod world;
