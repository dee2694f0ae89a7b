// Package lp solves the linear programs of 1-norm support vector machines.
//
//	min  ν Σ_i c_i E_i + Σ_j g_j |u_j|
//	s.t. D(K u − e γ) + E ≥ e,  E ≥ 0
package lp
