#!/usr/bin/env bash
# Installs what the tests need of the system: a software Vulkan adapter for the shader kernels, docker-registry for
# kernels in OCI registries, and the Level Zero loader for the devices of Intel. Does nothing about what is there; where
# something cannot be installed, says so, and the tests that need it print why they skip.
set -euo pipefail

missing=()
if compgen -G "/usr/share/vulkan/icd.d/*.json" >/dev/null || compgen -G "/etc/vulkan/icd.d/*.json" >/dev/null; then
    echo "a Vulkan driver is installed"
else
    missing+=(mesa-vulkan-drivers)
fi
if command -v docker-registry >/dev/null; then
    echo "docker-registry is installed"
else
    missing+=(docker-registry)
fi
if compgen -G "/usr/lib*/libze_loader.so.1" >/dev/null || compgen -G "/usr/lib/*/libze_loader.so.1" >/dev/null; then
    echo "the Level Zero loader is installed"
else
    missing+=(libze1)
fi
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if [ "$(uname -s)" != Linux ] || ! command -v apt-get >/dev/null; then
    echo "no apt-get to install ${missing[*]}; the tests that need them will skip"
    exit 0
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "install with: apt-get install ${missing[*]}. The tests that need them will skip"
        exit 0
    fi
    sudo=(sudo -n)
fi
if ! "${sudo[@]}" apt-get update -qq; then
    echo "apt-get update failed; trying with the lists that are there"
fi
# One at a time: a system that lacks one may have the other.
for package in "${missing[@]}"; do
    echo "installing $package"
    if ! DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq "$package"; then
        echo "$package could not be installed; the tests that need it will skip"
    fi
done
