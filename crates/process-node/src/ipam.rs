//! Addresses for pods. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use process_node::config::Ipv4Cidr;

/// Hands out the addresses of a network in turn, so that one that was given back rests as long as possible.
#[derive(Debug)]
pub(crate) struct Addresses {
    network: Ipv4Cidr,
    taken: BTreeSet<Ipv4Addr>,
    next: u32,
}

impl Addresses {
    /// All addresses of `network` but its first, its last and those in `reserved`.
    pub(crate) fn new(network: Ipv4Cidr, reserved: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let ends = [network.nth(0), network.nth(network.size() - 1)];
        let taken = reserved.into_iter().chain(ends.into_iter().flatten()).collect();
        Self { network, taken, next: 0 }
    }

    /// An address; none if all are taken.
    pub(crate) fn take(&mut self) -> Option<Ipv4Addr> {
        for _ in 0..self.network.size() {
            let address = self.network.nth(self.next)?;
            self.next = (self.next + 1) % self.network.size();
            if self.taken.insert(address) {
                return Some(address);
            }
        }
        None
    }

    /// Takes an address back.
    pub(crate) fn give_back(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_round() {
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let mut addresses = Addresses::new("10.0.0.0/29".parse().unwrap(), [address(1)]);
        let all: Vec<_> = std::iter::from_fn(|| addresses.take()).collect();
        assert_eq!(all, [2, 3, 4, 5, 6].map(address));
        addresses.give_back(address(4));
        addresses.give_back(address(2));
        assert_eq!(addresses.take(), Some(address(2)));
        addresses.give_back(address(2));
        assert_eq!(addresses.take(), Some(address(4)));
    }
}
