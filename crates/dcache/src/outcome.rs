//! What to walk, and what comes of it.

use crate::{Error, Filled, Found, Handle, Ticket};

/// How a path is walked.
///
/// A path is relative to the start; one that begins with a slash, or a link's target that does, begins at [`Walk::root`]. Repeated slashes count as one;
/// a slash at the end asks for a directory and lets a link be followed. The empty path is the start itself.
pub struct Walk<'a, I> {
    pub(crate) no_follow: bool,
    pub(crate) directory: bool,
    pub(crate) create: bool,
    pub(crate) parent: bool,
    pub(crate) no_wait: bool,
    pub(crate) root: Option<&'a Handle<I>>,
    pub(crate) search: Option<&'a (dyn Fn(&I) -> bool + 'a)>,
}

impl<I> Default for Walk<'_, I> {
    fn default() -> Self {
        Walk { no_follow: false, directory: false, create: false, parent: false, no_wait: false, root: None, search: None }
    }
}

impl<'a, I> Walk<'a, I> {
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

    /// The last component is going to be created. When the cache does not know it, the walk ends with [`Outcome::Place`] and leaves asking to the
    /// creation; when it knows that there is none, with [`Outcome::Absent`], also if a slash is behind it.
    pub fn create(mut self) -> Self {
        self.create = true;
        self
    }

    /// Stops before the last component: [`Outcome::Place`] tells its directory and name. For changes. A path without a last name (empty, `/`, or one that
    /// ends in `.` or `..`) gives [`Error::Invalid`].
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

    /// Asked about each directory in which a component is looked up; `false` ends the walk with [`Error::Denied`]. Called without any lock, in order
    /// of the path, before anything is said about what lies below; it must not block for long, and may be asked about one directory
    /// more than once.
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
    /// A name is not known. Nobody else asks for it while the ticket is held. Say what the store answered, then [`Cache::resume`](crate::Cache::resume).
    Miss(Ticket<I>),
    /// A name is known, but its time is over: [`Ticket::same`], or what it leads to now.
    Stale(Ticket<I>),
    /// A symbolic link whose target the cache does not have.
    Target(LinkTarget<I>),
    /// Somebody else holds the ticket: only with [`Walk::no_wait`].
    Busy(Waiting<I>),
    /// `..` of a directory that the cache has under no name any more (evicted or invalidated while a handle was held). Start again from the root.
    Orphan(Handle<I>),
    /// [`Error::NotDirectory`], [`Error::Loop`], [`Error::Denied`], [`Error::NameTooLong`], [`Error::Invalid`]; or the error that the holder of a ticket
    /// had while this walk waited for it.
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
pub struct Absent<'c, I: Send + Sync + 'static>(&'c I);

impl<I: Send + Sync + 'static> Absent<'_, I> {
    /// Whether it is the path's last name (of the last link's target, if that is where the walk ended).
    pub fn is_last(&self) -> bool {
        todo!()
    }

    /// The directory that does not have the name, and the name.
    pub fn place(&self) -> Place<I> {
        todo!()
    }
}

/// A walk that needs a link's target.
pub struct LinkTarget<I: Send + Sync + 'static>(std::marker::PhantomData<I>);

impl<I: Send + Sync + 'static> LinkTarget<I> {
    /// The link.
    pub fn link(&self) -> &Handle<I> {
        todo!()
    }

    /// Keeps the target with the link; [`Cache::resume`](crate::Cache::resume) goes on.
    pub fn publish(self, _target: &[u8]) -> Filled<I> {
        todo!()
    }
}

/// Somebody else's ticket.
pub struct Waiting<I: Send + Sync + 'static>(std::marker::PhantomData<I>);

impl<I: Send + Sync + 'static> Waiting<I> {
    /// Waits until the ticket is answered or given up; then [`Cache::resume`](crate::Cache::resume). The error of a holder who failed.
    pub fn wait(self) -> Result<Filled<I>, Error> {
        todo!()
    }
}
