//! What to walk, and what comes of it.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::handle::Spot;
use crate::inner::{Inner, allocated, count};
use crate::mem::{EntryPtr, EntryRef, Held};
use crate::node::Node;
use crate::reclaim::Guard;
use crate::room::Seat;
use crate::ticket::Opened;
use crate::walk::{End, Plain, Private, Route, hot, plain};
use crate::{Error, Filled, Found, Handle, Ticket};

/// How a path is walked.
///
/// A path is relative to the start; one that begins with a slash, or a link's target that does, begins at [`Walk::root`]. Repeated slashes
/// count as one; a slash at the end asks for a directory and lets a link be followed. The empty path is the start itself.
pub struct Walk<'a, I: Send + Sync + 'static> {
    pub(crate) no_follow: bool,
    pub(crate) directory: bool,
    pub(crate) create: bool,
    pub(crate) parent: bool,
    pub(crate) no_wait: bool,
    pub(crate) root: Option<&'a Handle<I>>,
    pub(crate) search: Option<&'a (dyn Fn(&I) -> bool + 'a)>,
}

impl<I: Send + Sync + 'static> Clone for Walk<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: Send + Sync + 'static> Copy for Walk<'_, I> {}

impl<I: Send + Sync + 'static> Default for Walk<'_, I> {
    fn default() -> Self {
        Walk { no_follow: false, directory: false, create: false, parent: false, no_wait: false, root: None, search: None }
    }
}

impl<'a, I: Send + Sync + 'static> Walk<'a, I> {
    /// Follows links, also the last; no hook.
    pub fn new() -> Self {
        Self::default()
    }

    /// The last component is not followed if it is a link (unless a slash comes behind it).
    pub fn no_follow(mut self) -> Self {
        self.no_follow = true;
        self
    }

    /// Only a directory will do; else [`Error::NotDirectory`].
    pub fn directory(mut self) -> Self {
        self.directory = true;
        self
    }

    /// The last component is going to be created. When the cache does not know it, the walk ends with [`Outcome::Place`] and leaves asking
    /// to the creation; when it knows that there is none, with [`Outcome::Absent`], also if a slash is behind it.
    pub fn create(mut self) -> Self {
        self.create = true;
        self
    }

    /// Stops before the last component: [`Outcome::Place`] tells its directory and name. For changes. A path without a last name (empty,
    /// `/`, or one that ends in `.` or `..`) gives [`Error::Invalid`].
    pub fn parent(mut self) -> Self {
        self.parent = true;
        self
    }

    /// Does not wait for somebody else's ticket: [`Outcome::Busy`] instead. For callers that must not block.
    pub fn no_wait(mut self) -> Self {
        self.no_wait = true;
        self
    }

    /// Where paths that begin with a slash begin, and above which `..` does not lead. The cache's root if not said.
    pub fn root(mut self, root: &'a Handle<I>) -> Self {
        self.root = Some(root);
        self
    }

    /// Asked about each directory in which a component is looked up; `false` ends the walk with [`Error::Denied`]. Called without any lock,
    /// in order of the path, before anything is said about what lies below; it must not block for long, and may be asked about one
    /// directory more than once.
    pub fn search(mut self, f: &'a (dyn Fn(&I) -> bool + 'a)) -> Self {
        self.search = Some(f);
        self
    }
}

/// What a walk came to. Each answer was true at one moment during the walk, for the path as a whole.
#[must_use]
pub enum Outcome<'c, I: Send + Sync + 'static> {
    /// The path leads to this node.
    Found(Found<'c, I>),
    /// There is no such name, and that is authoritative: the store has said so, or has given a complete listing.
    Absent(Absent<'c, I>),
    /// The directory and the last name: [`Walk::parent`], or [`Walk::create`] and the name is unknown.
    Place(Place<I>),
    /// A name is not known. Nobody else asks for it while the ticket is held. Say what the store answered, then
    /// [`Cache::resume`](crate::Cache::resume).
    Miss(Ticket<I>),
    /// A name is known, but its time is over: [`Ticket::same`], or what it leads to now.
    Stale(Ticket<I>),
    /// A symbolic link whose target the cache does not have.
    Target(LinkTarget<I>),
    /// Somebody else holds the ticket: only with [`Walk::no_wait`].
    Busy(Waiting<I>),
    /// `..` of a directory that the cache has under no name any more (invalidated while a handle was held); or a start that was evicted
    /// before its handle was made. Start again from the root.
    Orphan(Handle<I>),
    /// [`Error::NotDirectory`], [`Error::Loop`], [`Error::Denied`], [`Error::NameTooLong`], [`Error::Invalid`]; or the error that the
    /// holder of a ticket had while this walk waited for it.
    Failed(Error),
}

/// Where a name is, or would be.
pub struct Place<I: Send + Sync + 'static> {
    pub(crate) directory: Handle<I>,
    pub(crate) name: Box<[u8]>,
}

impl<I: Send + Sync + 'static> Place<I> {
    /// The directory that has the name.
    pub fn directory(&self) -> &Handle<I> {
        &self.directory
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

/// A name that does not exist.
pub struct Absent<'c, I: Send + Sync + 'static> {
    at: AbsentAt<'c, I>,
    inner: &'c Arc<Inner<I>>,
    last: bool,
}

enum AbsentAt<'c, I: Send + Sync + 'static> {
    /// The entry of the name.
    Negative(Held<I>),
    /// A directory that does not have the name.
    Lacks(Lacks<'c, I>),
}

/// Its end is kept out of the way of what a negative hit costs.
struct Lacks<'c, I: Send + Sync + 'static>(Option<(Spot<'c, I>, SmallVec<[u8; 32]>)>);

impl<I: Send + Sync + 'static> Drop for Lacks<'_, I> {
    #[inline(always)]
    fn drop(&mut self) {
        self.end();
    }
}

impl<I: Send + Sync + 'static> Lacks<'_, I> {
    #[cold]
    #[inline(never)]
    fn end(&mut self) {
        self.0 = None;
    }
}

impl<I: Send + Sync + 'static> Absent<'_, I> {
    /// Whether it is the path's last name (of the last link's target, if that is where the walk ended).
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// The directory that does not have the name, and the name.
    pub fn place(&self) -> Place<I> {
        let (dir, name) = match &self.at {
            AbsentAt::Negative(held) => (held.entry().get().parent(), held.entry().name()),
            AbsentAt::Lacks(Lacks(lacks)) => {
                let (spot, name) = lacks.as_ref().expect("until it ends");
                (spot.node(), &name[..])
            }
        };
        Place { directory: Handle::new(self.inner, dir.retain()), name: name.into() }
    }
}

/// A walk that needs a link's target.
pub struct LinkTarget<I: Send + Sync + 'static> {
    inner: Arc<Inner<I>>,
    link: Handle<I>,
    trip: Trip<I>,
}

impl<I: Send + Sync + 'static> LinkTarget<I> {
    /// The link.
    pub fn link(&self) -> &Handle<I> {
        &self.link
    }

    /// Keeps the target with the link; [`Cache::resume`](crate::Cache::resume) goes on.
    pub fn publish(self, target: &[u8]) -> Filled<I> {
        let node = self.link.raw();
        // What Node::bytes gives back.
        let bytes = if target.is_empty() { 0 } else { allocated(target.len()) };
        let charged = node.is_charged() && self.inner.reserve(0, bytes);
        match (node.set_target(target), charged) {
            (true, true) => node.set_target_charged(),
            (false, true) => self.inner.books.give(0, bytes),
            _ => {}
        }
        Filled { trip: self.trip, kept: true, node: Some(self.link) }
    }
}

/// Somebody else's ticket.
pub struct Waiting<I: Send + Sync + 'static> {
    seat: Seat,
    trip: Trip<I>,
}

impl<I: Send + Sync + 'static> Waiting<I> {
    /// Waits until the ticket is answered or given up; then [`Cache::resume`](crate::Cache::resume). The error of a holder who failed.
    pub fn wait(self) -> Result<Filled<I>, Error> {
        self.seat.wait()?;
        Ok(Filled { trip: self.trip, kept: false, node: None })
    }
}

/// A walk that outlives its guard: from where, what path, and the answers that are its own.
pub(crate) struct Trip<I: Send + Sync + 'static> {
    pub start: Handle<I>,
    pub path: Box<[u8]>,
    pub private: Vec<Private<I>>,
    /// Of one name: links are not followed.
    pub single: bool,
}

/// What is left of a walk when its guard has ended.
enum Rest<I: Send + Sync + 'static> {
    Root,
    Own(Handle<I>),
    RootLacks(SmallVec<[u8; 32]>, bool),
    Lacks(Handle<I>, SmallVec<[u8; 32]>, bool),
    Place(Place<I>),
    Miss(Handle<I>, Box<[u8]>),
    Wait(Option<Seat>),
    Stale(Option<EntryPtr<I>>),
    Target(Handle<I>, Option<Private<I>>),
    Orphan(Handle<I>),
    Failed(Error),
}

enum Tag {
    Found,
    Negative(bool),
    Lacks(SmallVec<[u8; 32]>, bool),
}

type Picked<'g, I> = Result<(EntryRef<'g, I>, Tag), Rest<I>>;

/// The walk in all its cases, under the guard: what can be kept with it, or what must outlive it.
#[inline(never)]
fn picked<'g, I: Send + Sync + 'static>(route: &Route<'_, I>, guard: &'g Guard) -> Picked<'g, I> {
    let inner = route.inner;
    let handle = |node: &Node<I>| Handle::new(inner, node.retain());
    let is_root = |node: &Node<I>| std::ptr::eq(node, inner.root());
    // A directory's own entry keeps it under the guard, so that no count need be taken.
    let own = |node: &Node<I>| node.dir().and_then(|d| d.own.get(guard));
    Err(match route.walk(guard) {
        End::At(_, Some(e)) => return Ok((e, Tag::Found)),
        End::Negative(e, last) => return Ok((e, Tag::Negative(last))),
        End::At(node, None) if is_root(node) => Rest::Root,
        End::At(node, None) => match own(node) {
            Some(e) => return Ok((e, Tag::Found)),
            None => Rest::Own(handle(node)),
        },
        End::Lacks(dir, via, name, last) => match via.or_else(|| own(dir)) {
            Some(e) => return Ok((e, Tag::Lacks(name.bytes.into(), last))),
            None if is_root(dir) => Rest::RootLacks(name.bytes.into(), last),
            None => Rest::Lacks(handle(dir), name.bytes.into(), last),
        },
        End::Place(dir, name) => Rest::Place(Place { directory: handle(dir), name: name.bytes.into() }),
        End::Miss(dir, name) => Rest::Miss(handle(dir), name.bytes.into()),
        End::Wait(e) => Rest::Wait(inner.rooms.sit(e.address(), || e.wait_for())),
        End::Stale(e) => Rest::Stale(e.revalidate().then(|| e.retain())),
        End::Target(link, at) => {
            let at = at.map(|(e, word)| {
                let dir = handle(e.get().parent());
                Private { dir, name: e.name().into(), word, trees: inner.trees_forgotten(), node: Some(handle(link)) }
            });
            Rest::Target(handle(link), at)
        }
        End::Orphan(dir) => Rest::Orphan(handle(dir)),
        End::Failed(error) => Rest::Failed(error),
    })
}

#[inline(always)]
fn plainly<'c, I: Send + Sync + 'static>(inner: &'c Arc<Inner<I>>, held: Held<I>, came_to: Plain) -> Outcome<'c, I> {
    match came_to {
        Plain::Found => Outcome::Found(Found { spot: Spot::Entry(held), inner }),
        Plain::Absent { last } => Outcome::Absent(Absent { at: AbsentAt::Negative(held), inner, last }),
    }
}

/// A walk from its begin. In line to the caller, so that what it came to is taken apart where it is made: an outcome is large.
#[inline(always)]
pub(crate) fn walk<'c, I: Send + Sync + 'static>(
    inner: &'c Arc<Inner<I>>,
    start: &Handle<I>,
    path: &[u8],
    options: &Walk<'_, I>,
) -> Outcome<'c, I> {
    let Ok((held, came_to)) = Held::pick(inner.reclaim.enter(), |guard| hot(inner, guard, start.raw(), path, options).ok_or(())) else {
        return walk_rarely(inner, start, path, options, false);
    };
    plainly(inner, held, came_to)
}

#[inline(never)]
fn walk_rarely<'c, I: Send + Sync + 'static>(
    inner: &'c Arc<Inner<I>>,
    start: &Handle<I>,
    path: &[u8],
    options: &Walk<'_, I>,
    single: bool,
) -> Outcome<'c, I> {
    // Another cache's nodes are in no chain here, so that no walk has got further than its begin.
    if !start.is_of(inner) || options.root.is_some_and(|root| !root.is_of(inner)) {
        return Outcome::Failed(Error::Invalid);
    }
    let mut lacks = 0..0;
    let again =
        Held::pick(inner.reclaim.enter(), |guard| plain::<_, true, true>(inner, guard, start.raw(), path, options, &mut lacks).ok_or(()));
    if let Ok((held, came_to)) = again {
        return match came_to {
            Plain::Absent { last } if !lacks.is_empty() => {
                let lacks = Lacks(Some((Spot::Entry(held), path[lacks].into())));
                Outcome::Absent(Absent { at: AbsentAt::Lacks(lacks), inner, last })
            }
            came_to => plainly(inner, held, came_to),
        };
    }
    match once(inner, start, path, options, &[]) {
        Ok(outcome) => outcome,
        Err(rest) => outlived(inner, start, path, options, rest, single),
    }
}

/// One name.
pub(crate) fn lookup<'c, I: Send + Sync + 'static>(inner: &'c Arc<Inner<I>>, directory: &Handle<I>, name: &[u8]) -> Outcome<'c, I> {
    if let Err(e) = inner.name(name) {
        return Outcome::Failed(e);
    }
    let options = Walk::new().no_follow();
    let Ok((held, came_to)) = Held::pick(inner.reclaim.enter(), |guard| hot(inner, guard, directory.raw(), name, &options).ok_or(()))
    else {
        return walk_rarely(inner, directory, name, &options, true);
    };
    plainly(inner, held, came_to)
}

/// A walk in all its cases, under one guard.
fn once<'c, I: Send + Sync + 'static>(
    inner: &'c Arc<Inner<I>>,
    start: &Handle<I>,
    path: &[u8],
    options: &Walk<'_, I>,
    private: &[Private<I>],
) -> Result<Outcome<'c, I>, Rest<I>> {
    let route = Route { inner, start: start.raw(), path, options, private };
    let (held, tag) = Held::pick(inner.reclaim.enter(), |guard| picked(&route, guard))?;
    Ok(match tag {
        Tag::Found => Outcome::Found(Found { spot: Spot::Entry(held), inner }),
        Tag::Negative(last) => Outcome::Absent(Absent { at: AbsentAt::Negative(held), inner, last }),
        Tag::Lacks(name, last) => Outcome::Absent(Absent { at: AbsentAt::Lacks(Lacks(Some((Spot::Entry(held), name)))), inner, last }),
    })
}

#[cold]
fn outlived<'c, I: Send + Sync + 'static>(
    inner: &'c Arc<Inner<I>>,
    start: &Handle<I>,
    path: &[u8],
    options: &Walk<'_, I>,
    rest: Rest<I>,
    single: bool,
) -> Outcome<'c, I> {
    let trip = || Trip { start: start.clone(), path: path.into(), private: Vec::new(), single };
    match go_on(inner, start, options, rest, trip) {
        Ok(outcome) => outcome,
        Err(_) => resume(inner, trip(), options),
    }
}

/// Goes on with a walk that has outlived its guard.
pub(crate) fn resume<'c, I: Send + Sync + 'static>(inner: &'c Arc<Inner<I>>, trip: Trip<I>, options: &Walk<'_, I>) -> Outcome<'c, I> {
    if !trip.start.is_of(inner) || options.root.is_some_and(|root| !root.is_of(inner)) {
        return Outcome::Failed(Error::Invalid);
    }
    let options = Walk { no_follow: options.no_follow || trip.single, ..*options };
    let mut trip = Some(trip);
    loop {
        let t = trip.as_ref().expect("it is taken at the end only");
        let rest = match once(inner, &t.start, &t.path, &options, &t.private) {
            Ok(outcome) => return outcome,
            Err(rest) => rest,
        };
        let start = t.start.clone();
        if let Ok(outcome) = go_on(inner, &start, &options, rest, || trip.take().expect("taken once")) {
            return outcome;
        }
    }
}

/// What comes of a walk without its guard; else it is to be walked again, and the trip was not taken.
fn go_on<'c, I: Send + Sync + 'static>(
    inner: &'c Arc<Inner<I>>,
    start: &Handle<I>,
    options: &Walk<'_, I>,
    rest: Rest<I>,
    trip: impl FnOnce() -> Trip<I>,
) -> Result<Outcome<'c, I>, ()> {
    let wait = |seat: Seat, trip: &mut dyn FnMut() -> Trip<I>| {
        count(&inner.books.waits);
        if options.no_wait {
            return Ok(Outcome::Busy(Waiting { seat, trip: trip() }));
        }
        seat.wait().map_or_else(|e| Ok(Outcome::Failed(e)), |()| Err(()))
    };
    let mut trip = Some(trip);
    let mut trip = move || trip.take().expect("taken once")();
    Ok(match rest {
        Rest::Root => Outcome::Found(Found { spot: Spot::Root(inner.root()), inner }),
        Rest::Own(handle) => Outcome::Found(Found { spot: Spot::Own(handle), inner }),
        Rest::RootLacks(name, last) => {
            Outcome::Absent(Absent { at: AbsentAt::Lacks(Lacks(Some((Spot::Root(inner.root()), name)))), inner, last })
        }
        Rest::Lacks(dir, name, last) => Outcome::Absent(Absent { at: AbsentAt::Lacks(Lacks(Some((Spot::Own(dir), name)))), inner, last }),
        Rest::Place(place) => Outcome::Place(place),
        Rest::Miss(dir, name) => match Ticket::open(inner, &dir, &name, &mut trip) {
            Opened::Ticket(ticket) => Outcome::Miss(ticket),
            Opened::Again => return Err(()),
            // What lies below the start is found again from there.
            Opened::Orphan if dir != *start => return Err(()),
            Opened::Orphan => Outcome::Orphan(dir),
            Opened::Wait(seat) => return wait(seat, &mut trip),
        },
        Rest::Wait(Some(seat)) => return wait(seat, &mut trip),
        Rest::Stale(Some(entry)) => Outcome::Stale(Ticket::stale(inner, entry, trip())),
        // It has changed meanwhile.
        Rest::Wait(None) | Rest::Stale(None) => return Err(()),
        Rest::Target(link, at) => {
            let mut trip = trip();
            // The room for the target may be made by evicting the link's name: the walk goes on through it all the same.
            trip.private.extend(at);
            Outcome::Target(LinkTarget { inner: inner.clone(), link, trip })
        }
        Rest::Orphan(dir) => Outcome::Orphan(dir),
        Rest::Failed(error) => Outcome::Failed(error),
    })
}
