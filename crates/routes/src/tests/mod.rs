//! The rules, each by a table.

mod bindings;
mod determinism;
mod gateways;
mod hosts;
mod objects;
mod ownership;
mod paths;
mod size;
mod world;
