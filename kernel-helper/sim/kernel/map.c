// SPDX-License-Identifier: Apache-2.0
/* BPF's maps and storage. What is looked up and not there is NULL, as in the kernel. */
#include <stdlib.h>
#include <string.h>

#include "kernel/error.h"
#include "kernel/map.h"
#include "kernel/object.h"
#include "shim/bpf/bpf_helpers.h"

enum {
	HASH = 1,
	ARRAY = 2,
	PERCPU_HASH = 5,
	PERCPU_ARRAY = 6,
	LRU_HASH = 9,
};

#define BPF_NOEXIST 1
#define BPF_EXIST   2
#define BUCKETS	    4096
#define STORED	    4 /* storages a task can have */

struct entry {
	struct entry *next;
	char data[]; /* key, padded to 8, then the value */
};

struct map {
	struct map *next;
	u32 type, key_size, value_size, entries, used;
	u32 percpu;	   /* copies of a value */
	char *values;	   /* of an array */
	struct entry **at; /* of a hash */
};

static u32 padded(u32 size)
{
	return (size + 7) / 8 * 8;
}

static void *need(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

void *shim_map(void **handle, u32 type, u32 key_size, u32 value_size, u32 entries)
{
	struct map *map = *handle;
	u64 size;

	if (map)
		return map;
	map = need(calloc(1, sizeof(*map)));
	map->type = type;
	map->key_size = key_size;
	map->value_size = value_size;
	map->entries = entries;
	map->percpu = type == PERCPU_ARRAY || type == PERCPU_HASH ? sim_current->config->cpus : 1;
	size = (u64)map->percpu * padded(value_size);
	if (type == ARRAY || type == PERCPU_ARRAY)
		map->values = need(calloc(entries, size));
	else if (type == HASH || type == LRU_HASH || type == PERCPU_HASH)
		map->at = need(calloc(BUCKETS, sizeof(*map->at)));
	else
		ext_error(sim_current, "a map of type %u, which is not modelled", type);
	map->next = sim_current->maps;
	sim_current->maps = map;
	return *handle = map;
}

static struct entry **find(struct map *map, const void *key)
{
	const unsigned char *bytes = key;
	u32 hash = 2166136261U, i;
	struct entry **at;

	for (i = 0; i < map->key_size; i++)
		hash = (hash ^ bytes[i]) * 16777619U;
	at = &map->at[(hash ^ hash >> 16) % BUCKETS];
	while (*at && memcmp((*at)->data, key, map->key_size))
		at = &(*at)->next;
	return at;
}

void *shim_map_lookup_percpu(void *handle, const void *key, u32 cpu)
{
	struct map *map = handle;
	u64 shift = (u64)(map->percpu > 1 ? cpu : 0) * padded(map->value_size);
	struct entry *entry;
	u32 index;

	price(sim_current->config->call_ns);
	if (map->values) {
		memcpy(&index, key, sizeof(index));
		if (index >= map->entries)
			return NULL;
		return map->values + (u64)index * map->percpu * padded(map->value_size) + shift;
	}
	entry = map->at ? *find(map, key) : NULL;
	return entry ? entry->data + padded(map->key_size) + shift : NULL;
}

void *shim_map_lookup(void *map, const void *key)
{
	return shim_map_lookup_percpu(map, key, sim_current->event.cpu);
}

long shim_map_update(void *handle, const void *key, const void *value, unsigned long long flags)
{
	struct map *map = handle;
	void *old = shim_map_lookup(map, key);
	u64 size = padded(map->key_size) + (u64)map->percpu * padded(map->value_size);
	struct entry *entry;

	if (old && flags == BPF_NOEXIST)
		return -17;
	if (!old && flags == BPF_EXIST)
		return -2;
	if (!old) {
		if (map->values || map->used == map->entries)
			return -7;
		entry = need(calloc(1, sizeof(*entry) + size));
		memcpy(entry->data, key, map->key_size);
		*find(map, key) = entry;
		map->used++;
		old = shim_map_lookup(map, key);
	}
	memcpy(old, value, map->value_size);
	return 0;
}

long shim_map_delete(void *handle, const void *key)
{
	struct map *map = handle;
	struct entry **at, *entry;

	price(sim_current->config->call_ns);
	at = map->at ? find(map, key) : NULL;
	entry = at ? *at : NULL;
	if (!entry)
		return -2;
	*at = entry->next;
	free(entry);
	map->used--;
	return 0;
}

typedef long (*each_t)(void *, const void *, void *, void *);

long shim_map_each(void *handle, each_t callback, void *context)
{
	struct map *map = handle;
	u32 i, rounds = 0;

	for (i = 0; map->values && i < map->entries; i++, rounds++)
		if (callback(map, &i, shim_map_lookup(map, &i), context))
			return rounds + 1;
	for (i = 0; map->at && i < BUCKETS; i++) {
		struct entry *entry = map->at[i], *next;

		for (; entry; entry = next, rounds++) {
			next = entry->next;
			if (callback(map, entry->data, entry->data + padded(map->key_size),
				     context))
				return rounds + 1;
		}
	}
	return rounds;
}

/* The key under which @value is in @map: a timer's callback is told. */
const void *map_key(void *handle, const void *value, u32 *index)
{
	struct map *map = handle;
	u32 i;

	if (map->values) {
		*index = ((const char *)value - map->values) /
			 (map->percpu * padded(map->value_size));
		return index;
	}
	for (i = 0; map->at && i < BUCKETS; i++) {
		struct entry *entry = map->at[i];

		for (; entry; entry = entry->next)
			if (entry->data + padded(map->key_size) <= (const char *)value &&
			    (const char *)value <
				    entry->data + padded(map->key_size) + padded(map->value_size))
				return entry->data;
	}
	return NULL;
}

void map_free(struct sim *sim)
{
	while (sim->maps) {
		struct map *map = sim->maps;
		u32 i;

		sim->maps = map->next;
		for (i = 0; map->at && i < BUCKETS; i++) {
			while (map->at[i]) {
				struct entry *entry = map->at[i];

				map->at[i] = entry->next;
				free(entry);
			}
		}
		free(map->at);
		free(map->values);
		free(map);
	}
}

/* ---- storage: a value of a task's own, or of a cgroup's ------------------ */

static void **storage_of(void *owner)
{
	struct sim *sim = sim_current;
	char *at = owner, *groups = (char *)sim->cgroups;

	if (at >= groups && at < groups + sim->config->groups * sizeof(*sim->cgroups))
		return ((struct cgroup *)owner)->storage;
	return ((struct task_struct *)owner)->storage;
}

void *shim_storage(void **handle, void *owner, u32 size, unsigned long long flags)
{
	void **at;
	u32 i;

	price(sim_current->config->call_ns);
	if (!owner)
		return NULL;
	at = storage_of(owner);
	for (i = 0; i < STORED; i++) {
		if (at[2 * i] == handle)
			return at[2 * i + 1];
		if (at[2 * i])
			continue;
		if (!(flags & 1))
			return NULL;
		at[2 * i] = handle;
		at[2 * i + 1] = need(calloc(1, size));
		return at[2 * i + 1];
	}
	return NULL;
}

long shim_storage_delete(void **handle, void *owner)
{
	void **at = storage_of(owner);
	u32 i;

	for (i = 0; i < STORED; i++) {
		if (at[2 * i] != handle)
			continue;
		free(at[2 * i + 1]);
		at[2 * i] = at[2 * i + 1] = NULL;
		return 0;
	}
	return -2;
}

void storage_free(void **at)
{
	u32 i;

	for (i = 0; i < STORED; i++)
		free(at[2 * i + 1]);
	memset(at, 0, 2 * STORED * sizeof(*at));
}
