// SPDX-License-Identifier: Apache-2.0
/* Object: a map that another loaded object has, in the place of an own one. */
#include "core.h"

#include <string.h>
#include <unistd.h>

/* The kernel keeps 15 characters of a map's name. */
static bool is_alike(const struct bpf_map *map, const struct bpf_map_info *info)
{
	return !strncmp(bpf_map__name(map), info->name, sizeof(info->name) - 1) &&
	       bpf_map__type(map) == info->type && bpf_map__key_size(map) == info->key_size &&
	       bpf_map__value_size(map) == info->value_size &&
	       bpf_map__max_entries(map) == info->max_entries;
}

/* Return a descriptor of the newest map in the kernel that is like @map, -1 when there is none. */
static int find_alike(const struct bpf_map *map)
{
	int found = -1, fd;
	__u32 id = 0;

	while (!bpf_map_get_next_id(id, &id)) {
		struct bpf_map_info info = {0};
		__u32 size = sizeof(info);

		fd = bpf_map_get_fd_by_id(id);
		if (fd < 0)
			continue; /* it is gone */
		if (bpf_map_get_info_by_fd(fd, &info, &size) || !is_alike(map, &info)) {
			close(fd);
			continue;
		}
		if (found >= 0)
			close(found);
		found = fd;
	}
	return found;
}

PyObject *object_share_map(PyObject *op, PyObject *arg)
{
	struct object *self = (struct object *)op;
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
	struct bpf_map *map;
	int fd, err;
	CORE_LOG(log);

	if (!name || !object_need(self, OBJECT_OPEN))
		return NULL;
	map = object_find_map(self, name);
	if (!map)
		return NULL;
	fd = find_alike(map);
	if (fd < 0)
		Py_RETURN_FALSE;
	err = bpf_map__reuse_fd(map, fd);
	close(fd);
	if (err)
		return core_raise(core_state_of(self), err, &log, "%U: share map '%s'", self->name,
				  name);
	Py_RETURN_TRUE;
}
