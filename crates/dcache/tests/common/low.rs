//! The loops of a file system's author by hand, on the cache alone: they never wait for a ticket, so that a program may hold some.

use manyway_dcache::{Binding, Cache, Filled, Outcome, Store, Ticket, Ttl, Walk};

use super::fs::{Body, Flags, How, Ino, Make, No};
use super::subject::{Backend, Inode, Node, Subject, error, how, kind, no};

impl Backend {
    /// What the cache is told of an inode, without the trait.
    pub fn binding(&self, ino: Ino) -> Binding<Inode> {
        let item = self.item(ino);
        let id = item.id;
        let binding = Binding::new(item.kind, item.inode);
        if id == 0 { binding } else { binding.id(id) }
    }
}

/// What the store says about a ticket's name.
pub fn ask(s: &Subject, ticket: &Ticket<Inode>) -> Result<Ino, No> {
    s.sim.lookup(ticket.directory().inode().ino, ticket.name())
}

/// Hands an answer in.
pub fn hand_in(s: &Subject, ticket: Ticket<Inode>, answer: Result<Ino, No>) -> Option<Filled<Inode>> {
    let ttl = s.setup.ttl();
    Some(match answer {
        Ok(ino) if s.setup.revalidates && ticket.known().is_some_and(|node| node.inode().ino == ino) => ticket.same(ttl),
        Ok(ino) => ticket.publish(s.tree.store().binding(ino), ttl),
        Err(No::NotFound) => ticket.absent(ttl),
        Err(e) => {
            ticket.failed(error(e));
            return None;
        }
    })
}

impl Subject {
    pub fn cache(&self) -> &Cache<Inode> {
        self.tree.cache()
    }

    /// As [`Subject::handle`]; `Busy` where a ticket is held.
    pub fn low_handle(&self, start: &Node, path: &[u8], flags: Flags) -> Result<Node, No> {
        let open = |inode: &Inode| self.sim.with(|fs| !fs.node(inode.ino).closed);
        let mut walk = Walk::new().search(&open).no_wait();
        if flags.no_follow {
            walk = walk.no_follow();
        }
        if flags.directory {
            walk = walk.directory();
        }
        let mut outcome = self.cache().walk(start, path, &walk);
        for _ in 0..1000 {
            outcome = match outcome {
                Outcome::Found(found) => return Ok(found.handle()),
                Outcome::Absent(_) => return Err(No::NotFound),
                Outcome::Miss(ticket) | Outcome::Stale(ticket) => {
                    let answer = ask(self, &ticket);
                    match hand_in(self, ticket, answer) {
                        Some(filled) => self.cache().resume(filled, &walk),
                        None => return Err(answer.expect_err("it failed")),
                    }
                }
                Outcome::Target(link) => {
                    let target = self.tree.store().readlink(link.link().inode()).map_err(no)?;
                    self.cache().resume(link.publish(&target), &walk)
                }
                Outcome::Busy(_) => return Err(No::Busy),
                Outcome::Orphan(_) => return Err(No::Stale),
                Outcome::Failed(e) => return Err(no(e)),
                Outcome::Place(_) => panic!("not asked for"),
            };
        }
        panic!("{:?}: the walk does not end", String::from_utf8_lossy(path));
    }

    pub fn low_create(&self, dir: &Node, name: &[u8], make: &Make) -> Result<Ino, No> {
        let change = self.cache().create(dir, name).map_err(no)?;
        match self.sim.create(dir.inode().ino, name, make.clone()) {
            Ok(ino) => {
                let node = change.commit(self.tree.store().binding(ino), self.setup.ttl(), true);
                assert_eq!(node.inode().ino, ino);
                Ok(ino)
            }
            Err(No::Failed) => Err(No::Failed),
            Err(e) => {
                change.unchanged();
                Err(e)
            }
        }
    }

    fn low_change(
        &self,
        begun: Result<manyway_dcache::Change<Inode>, manyway_dcache::Error>,
        ask: impl FnOnce() -> Result<(), No>,
    ) -> Result<(), No> {
        let change = begun.map_err(no)?;
        match ask() {
            Ok(()) => change.ttl(self.setup.ttl()).commit(),
            // Whether it was done is not known: dropped.
            Err(No::Failed) => return Err(No::Failed),
            Err(e) => {
                change.unchanged();
                return Err(e);
            }
        }
        Ok(())
    }

    pub fn low_link(&self, node: &Node, dir: &Node, name: &[u8]) -> Result<(), No> {
        self.low_change(self.cache().link(node, dir, name), || self.sim.link(node.inode().ino, dir.inode().ino, name))
    }

    pub fn low_unlink(&self, dir: &Node, name: &[u8]) -> Result<(), No> {
        self.low_change(self.cache().unlink(dir, name), || self.sim.unlink(dir.inode().ino, name))
    }

    pub fn low_rmdir(&self, dir: &Node, name: &[u8]) -> Result<(), No> {
        self.low_change(self.cache().rmdir(dir, name), || self.sim.rmdir(dir.inode().ino, name))
    }

    pub fn low_rename(&self, from: (&Node, &[u8]), to: (&Node, &[u8]), by: How) -> Result<(), No> {
        let ask = || self.sim.rename((from.0.inode().ino, from.1), (to.0.inode().ino, to.1), by);
        self.low_change(self.cache().rename(from, to, how(by)), ask)
    }

    /// Lists so many names at most; whether the cache says that the directory is complete.
    pub fn low_list(&self, dir: &Node, most: usize) -> Result<bool, No> {
        let mut listing = self.cache().list(dir).map_err(no)?;
        let names = self.sim.with(|fs| fs.list(dir.inode().ino))?;
        let n = names.len();
        for (name, ino) in names.into_iter().take(most) {
            listing.put(&name, self.tree.store().binding(ino), self.setup.ttl());
        }
        let ttl = if self.setup.complete { self.setup.ttl() } else { Ttl::No };
        Ok(if most < n { false } else { listing.complete(ttl) })
    }

    /// The kind of an inode, as the store has it.
    pub fn kind(&self, ino: Ino) -> manyway_dcache::Kind {
        self.sim.with(|fs| kind(&fs.node(ino).body))
    }

    pub fn is_link(&self, ino: Ino) -> bool {
        self.sim.with(|fs| matches!(fs.node(ino).body, Body::Link(_)))
    }
}
