//! The scripts by name, as a worker is told of them.

use serde::{Deserialize, Serialize};

use crate::workloads::{handoff, lat_sem, lockloop, osim, sembench, semop_multi, semscale, waitforzero};

/// A script with its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Scene {
    /// See [`handoff`].
    Handoff(handoff::Turns),
    /// See [`lat_sem`].
    LatSem(lat_sem::Exchange),
    /// See [`lockloop`].
    Lockloop(lockloop::Lock),
    /// See [`osim`].
    Osim(osim::Simulation),
    /// See [`sembench`].
    Sembench(sembench::Burns),
    /// See [`semop_multi`].
    SemopMulti(semop_multi::Multi),
    /// See [`semscale`].
    Semscale(semscale::Scale),
    /// See [`waitforzero`].
    WaitForZero(waitforzero::Crossings),
}

/// Runs `$body` with `$script` bound to the script of a scene.
macro_rules! with_scene {
    ($scene:expr, $script:ident => $body:expr) => {
        match $scene {
            $crate::crowd::Scene::Handoff($script) => $body,
            $crate::crowd::Scene::LatSem($script) => $body,
            $crate::crowd::Scene::Lockloop($script) => $body,
            $crate::crowd::Scene::Osim($script) => $body,
            $crate::crowd::Scene::Sembench($script) => $body,
            $crate::crowd::Scene::SemopMulti($script) => $body,
            $crate::crowd::Scene::Semscale($script) => $body,
            $crate::crowd::Scene::WaitForZero($script) => $body,
        }
    };
}
pub(crate) use with_scene;
