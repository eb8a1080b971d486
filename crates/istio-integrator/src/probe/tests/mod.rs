//! Tests of the prober.

mod ask;
mod book;
mod prober;
mod standing;
mod world;
